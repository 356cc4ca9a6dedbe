package main

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// command is one line on stdin.
type command struct {
	ID     json.RawMessage `json:"id"`
	Op     string          `json:"op"`
	Object json.RawMessage `json:"object"`
	Pod    *v1.Pod         `json:"pod"`
	Pods   []*v1.Pod       `json:"pods"`
}

// do runs one operation:
//
//	apply object     create or replace an API object (Node, Pod, ResourceClaim with status, ResourceSlice)
//	delete object    delete it
//	slices           all ResourceSlices
//	prepare pod      PrepareResources, as before the Pod's sandbox is made; the Pod is active from now on
//	unprepare pod    UnprepareResources, as after its containers ended; then it is no longer active
//	active pods      replaces the list of active Pods; what else is prepared is unprepared by the 60 s loop
//	cdi pod          container name -> CDI devices handed to the runtime
//	claims pod       container name -> claims as PodResources reports them
//	health pod       the Pod's status with allocatedResourcesStatus
//	updates          UIDs of Pods whose health changed since the last question
//	registrations    what happened to plugins since the last question
func (k *kubelet) do(ctx context.Context, c command) (any, error) {
	switch c.Op {
	case "apply":
		return nil, k.apply(ctx, c.Object)
	case "delete":
		return nil, k.remove(ctx, c.Object)
	case "slices":
		list, err := k.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	case "updates":
		k.mu.Lock()
		defer k.mu.Unlock()
		updated := append([]string{}, k.updated...)
		k.updated = nil
		return updated, nil
	case "registrations":
		k.mu.Lock()
		defer k.mu.Unlock()
		happened := append([]registration{}, k.registrations...)
		k.registrations = nil
		return happened, nil
	case "active":
		k.setActive(c.Pods)
		return nil, nil
	}
	if c.Pod == nil {
		return nil, fmt.Errorf("operation %q: unknown, or needs a pod", c.Op)
	}
	switch c.Op {
	case "prepare":
		k.mu.Lock()
		k.active[c.Pod.UID] = c.Pod
		k.mu.Unlock()
		return nil, k.manager.PrepareResources(ctx, c.Pod)
	case "unprepare":
		if err := k.manager.UnprepareResources(ctx, c.Pod); err != nil {
			return nil, err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.active, c.Pod.UID)
		return nil, nil
	case "cdi":
		return perContainer(c.Pod, func(container *v1.Container) (any, error) {
			info, err := k.manager.GetResources(c.Pod, container)
			if err != nil {
				return nil, err
			}
			names := []string{}
			for _, device := range info.CDIDevices {
				names = append(names, device.Name)
			}
			return names, nil
		})
	case "claims":
		return perContainer(c.Pod, func(container *v1.Container) (any, error) {
			return k.manager.GetContainerClaimInfos(c.Pod, container)
		})
	case "health":
		status := c.Pod.Status.DeepCopy()
		if len(status.ContainerStatuses) == 0 {
			for i := range c.Pod.Spec.Containers {
				status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{Name: c.Pod.Spec.Containers[i].Name})
			}
		}
		k.manager.UpdateAllocatedResourcesStatus(klog.FromContext(ctx), c.Pod, status)
		return status, nil
	}
	return nil, fmt.Errorf("operation %q: unknown", c.Op)
}

func perContainer(pod *v1.Pod, ask func(*v1.Container) (any, error)) (map[string]any, error) {
	result := map[string]any{}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			answer, err := ask(&containers[i])
			if err != nil {
				return nil, err
			}
			result[containers[i].Name] = answer
		}
	}
	return result, nil
}
