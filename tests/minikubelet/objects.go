package main

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// memoryAPI is client-go's fake, which in addition honours the field selectors of the kubelet's slice wiping.
func memoryAPI(ctx context.Context, node, objects string) (kubernetes.Interface, error) {
	client := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID("uid-of-" + node)}})
	client.PrependReactor("delete-collection", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		selector := action.(clienttesting.DeleteCollectionAction).GetListRestrictions().Fields
		return true, nil, wipe(client, selector)
	})
	if objects == "" {
		return client, nil
	}
	var list []json.RawMessage
	if err := readArray(objects, &list); err != nil {
		return nil, err
	}
	k := &kubelet{client: client}
	for _, object := range list {
		if err := k.apply(ctx, object); err != nil {
			return nil, fmt.Errorf("%s: %w", objects, err)
		}
	}
	return client, nil
}

func wipe(client *fake.Clientset, selector fields.Selector) error {
	resource := resourceapi.SchemeGroupVersion.WithResource("resourceslices")
	kind := resourceapi.SchemeGroupVersion.WithKind("ResourceSlice")
	found, err := client.Tracker().List(resource, kind, "")
	if err != nil {
		return err
	}
	for _, slice := range found.(*resourceapi.ResourceSliceList).Items {
		values := fields.Set{"spec.driver": slice.Spec.Driver}
		if slice.Spec.NodeName != nil {
			values["spec.nodeName"] = *slice.Spec.NodeName
		}
		if !selector.Matches(values) {
			continue
		}
		if err := client.Tracker().Delete(resource, "", slice.Name); err != nil {
			return err
		}
	}
	return nil
}

func (k *kubelet) apply(ctx context.Context, raw json.RawMessage) error {
	kind, meta, err := identify(raw)
	if err != nil {
		return err
	}
	switch kind {
	case "Node":
		api := k.client.CoreV1().Nodes()
		return createOrReplace(ctx, raw, api.Create, api.Update)
	case "Pod":
		api := k.client.CoreV1().Pods(meta.Namespace)
		return createOrReplace(ctx, raw, api.Create, api.Update)
	case "ResourceSlice":
		api := k.client.ResourceV1().ResourceSlices()
		return createOrReplace(ctx, raw, api.Create, api.Update)
	case "ResourceClaim":
		api := k.client.ResourceV1().ResourceClaims(meta.Namespace)
		if err := createOrReplace(ctx, raw, api.Create, api.Update); err != nil {
			return err
		}
		var wanted resourceapi.ResourceClaim
		if err := json.Unmarshal(raw, &wanted); err != nil {
			return err
		}
		stored, err := api.Get(ctx, meta.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		stored.Status = wanted.Status
		_, err = api.UpdateStatus(ctx, stored, metav1.UpdateOptions{})
		return err
	}
	return fmt.Errorf("apply: kind %q is not supported", kind)
}

func (k *kubelet) remove(ctx context.Context, raw json.RawMessage) error {
	kind, meta, err := identify(raw)
	if err != nil {
		return err
	}
	switch kind {
	case "Pod":
		return k.client.CoreV1().Pods(meta.Namespace).Delete(ctx, meta.Name, metav1.DeleteOptions{})
	case "ResourceSlice":
		return k.client.ResourceV1().ResourceSlices().Delete(ctx, meta.Name, metav1.DeleteOptions{})
	case "ResourceClaim":
		return k.client.ResourceV1().ResourceClaims(meta.Namespace).Delete(ctx, meta.Name, metav1.DeleteOptions{})
	}
	return fmt.Errorf("delete: kind %q is not supported", kind)
}

func identify(raw json.RawMessage) (string, metav1.ObjectMeta, error) {
	var object struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
	}
	err := json.Unmarshal(raw, &object)
	return object.Kind, object.ObjectMeta, err
}

func createOrReplace[T any](ctx context.Context, raw json.RawMessage,
	create func(context.Context, *T, metav1.CreateOptions) (*T, error),
	update func(context.Context, *T, metav1.UpdateOptions) (*T, error)) error {
	object := new(T)
	if err := json.Unmarshal(raw, object); err != nil {
		return err
	}
	_, err := create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = update(ctx, object, metav1.UpdateOptions{})
	}
	return err
}
