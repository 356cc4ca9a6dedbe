// Command minikubelet is a kubelet reduced to what a DRA driver meets: the real plugin manager and the real DRA manager
// of Kubernetes, without Pods, containers or a runtime. Tests drive it through its standard streams.
//
//	minikubelet -root DIR [-node NAME] [-kubeconfig FILE] [-objects FILE] [-active FILE] [-feature-gates A=true,B=false]
//
// DIR/plugins_registry is the registration directory; DIR holds the kubelet's checkpoints, so that starting it again with
// the same DIR is a kubelet restart. The API server is the one of -kubeconfig, else one in memory that begins with the
// Node and the JSON array of objects in -objects. -active is a JSON array of Pods that run already.
//
// Each line on stdin is a JSON object with "op", an "id" of the caller's choice and the arguments of the operation (see
// operations.go). Operations run at the same time, as the kubelet's Pod workers do. Each gives one JSON line on stdout
// with the "id", "seconds", and either "result" or "error", the text that the kubelet would put into an Event. The line
// {"ready":true} comes first. The end of stdin ends the program.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

func main() {
	root := flag.String("root", "", "kubelet root directory, required")
	node := flag.String("node", "node-1", "name of the Node object")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of an API server; default: one in memory")
	objects := flag.String("objects", "", "JSON array of objects that the API in memory begins with")
	active := flag.String("active", "", "JSON array of Pods that are active at the start")
	gates := flag.String("feature-gates", "", "kubelet feature gates")
	klog.InitFlags(nil)
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *node, *kubeconfig, *objects, *active, *gates); err != nil {
		fmt.Fprintln(os.Stderr, "minikubelet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, node, kubeconfig, objects, active, gates string) error {
	if root == "" {
		return errors.New("-root is required")
	}
	if gates != "" {
		if err := utilfeature.DefaultMutableFeatureGate.Set(gates); err != nil {
			return err
		}
	}
	client, err := connect(ctx, node, kubeconfig, objects)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var pods []*v1.Pod
	if active != "" {
		if err := readArray(active, &pods); err != nil {
			return err
		}
	}
	k, err := startKubelet(ctx, client, root, node, pods)
	if err != nil {
		return err
	}
	defer k.manager.Stop()
	return serve(ctx, k)
}

func connect(ctx context.Context, node, kubeconfig, objects string) (kubernetes.Interface, error) {
	if kubeconfig == "" {
		return memoryAPI(ctx, node, objects)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

func readArray[T any](file string, into *[]T) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// answer is one line on stdout.
type answer struct {
	ID      json.RawMessage `json:"id,omitempty"`
	Ready   bool            `json:"ready,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   string          `json:"error,omitempty"`
	Seconds float64         `json:"seconds"`
}

func serve(ctx context.Context, k *kubelet) error {
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	write := func(a answer) {
		mu.Lock()
		defer mu.Unlock()
		if err := out.Encode(a); err != nil {
			fmt.Fprintln(os.Stderr, "minikubelet: answer lost:", err)
		}
	}

	var running sync.WaitGroup
	lines := make(chan []byte)
	failed := make(chan error, 1)
	go func() {
		defer close(lines)
		in := bufio.NewScanner(os.Stdin)
		in.Buffer(nil, 64<<20)
		for in.Scan() {
			lines <- append([]byte(nil), in.Bytes()...)
		}
		failed <- in.Err()
	}()
	write(answer{Ready: true})
	for {
		select {
		case <-ctx.Done():
			return nil
		case line, more := <-lines:
			if !more {
				running.Wait()
				return <-failed
			}
			running.Add(1)
			go func() {
				defer running.Done()
				write(execute(ctx, k, line))
			}()
		}
	}
}

func execute(ctx context.Context, k *kubelet, line []byte) answer {
	begin := time.Now()
	var c command
	var a answer
	err := json.Unmarshal(line, &c)
	if err == nil {
		a.ID = c.ID
		a.Result, err = k.do(ctx, c)
	}
	if err != nil {
		a.Error = err.Error()
	}
	a.Seconds = time.Since(begin).Seconds()
	return a
}
