package main

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/cache"
)

// kubelet holds the kubelet's own parts and what they would get from the rest of it.
type kubelet struct {
	client  kubernetes.Interface
	manager *dra.Manager

	mu            sync.Mutex
	active        map[types.UID]*v1.Pod // as the Pod manager would list them
	updated       []string              // UIDs of Pods whose device health changed
	registrations []registration
}

// registration is one decision of the plugin manager about a driver.
type registration struct {
	Event    string   `json:"event"` // validate, register, deregister
	Driver   string   `json:"driver"`
	Endpoint string   `json:"endpoint"`
	Versions []string `json:"versions,omitempty"`
	Error    string   `json:"error,omitempty"`
}

// startKubelet starts the managers as kubelet.go and container_manager_linux.go do.
func startKubelet(ctx context.Context, client kubernetes.Interface, root, node string, active []*v1.Pod) (*kubelet, error) {
	registry := filepath.Join(root, "plugins_registry")
	if err := os.MkdirAll(registry, 0o750); err != nil {
		return nil, err
	}
	manager, err := dra.NewManager(klog.FromContext(ctx), client, root)
	if err != nil {
		return nil, err
	}
	k := &kubelet{client: client, manager: manager}
	k.setActive(active)
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return true })
	getNode := func(ctx context.Context) (*v1.Node, error) {
		return client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	}
	if err := manager.Start(ctx, k.activePods, getNode, ready); err != nil {
		return nil, err
	}
	plugins := pluginmanager.NewPluginManager(registry, record.NewFakeRecorder(100))
	plugins.AddHandler(registerapi.DRAPlugin, recorder{manager.GetWatcherHandler(), k})
	go plugins.Run(ctx, ready, ctx.Done())
	go k.collectUpdates(ctx)
	return k, nil
}

func (k *kubelet) setActive(pods []*v1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.active = map[types.UID]*v1.Pod{}
	for _, pod := range pods {
		k.active[pod.UID] = pod
	}
}

func (k *kubelet) activePods() []*v1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	pods := make([]*v1.Pod, 0, len(k.active))
	for _, pod := range k.active {
		pods = append(pods, pod)
	}
	return pods
}

func (k *kubelet) collectUpdates(ctx context.Context) {
	for {
		select {
		case update := <-k.manager.Updates():
			k.mu.Lock()
			k.updated = append(k.updated, update.PodUIDs...)
			k.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// recorder notes what the DRA manager is asked about plugins and what it says.
type recorder struct {
	cache.PluginHandler
	k *kubelet
}

func (r recorder) note(event, driver, endpoint string, versions []string, err error) {
	entry := registration{Event: event, Driver: driver, Endpoint: endpoint, Versions: versions}
	if err != nil {
		entry.Error = err.Error()
	}
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	r.k.registrations = append(r.k.registrations, entry)
}

func (r recorder) ValidatePlugin(ctx context.Context, driver, endpoint string, versions []string) error {
	err := r.PluginHandler.ValidatePlugin(ctx, driver, endpoint, versions)
	r.note("validate", driver, endpoint, versions, err)
	return err
}

func (r recorder) RegisterPlugin(ctx context.Context, driver, endpoint string, versions []string, timeout *time.Duration) error {
	err := r.PluginHandler.RegisterPlugin(ctx, driver, endpoint, versions, timeout)
	r.note("register", driver, endpoint, versions, err)
	return err
}

func (r recorder) DeRegisterPlugin(ctx context.Context, driver, endpoint string) {
	r.PluginHandler.DeRegisterPlugin(ctx, driver, endpoint)
	r.note("deregister", driver, endpoint, nil, nil)
}
