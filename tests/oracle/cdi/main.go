// The CDI reference library as a judge, one JSON request per line on standard input, one answer per line.
//
//	{"op":"load","files":{"a.json":"…"}}
//	    loads the files from one directory: which devices resolve, and the errors per file
//	{"op":"inject","dirs":["/var/run/cdi"],"devices":["vendor/class=name"],"config":{…}}
//	    applies devices to an OCI configuration: the changed configuration, or the error
//	{"op":"minimum","spec":{…}}
//	    the lowest version that the library asks for
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

type request struct {
	Op      string            `json:"op"`
	Files   map[string]string `json:"files"`
	Dirs    []string          `json:"dirs"`
	Devices []string          `json:"devices"`
	Config  *oci.Spec         `json:"config"`
	Spec    *specs.Spec       `json:"spec"`
}

type answer struct {
	Devices []string            `json:"devices,omitempty"`
	Errors  map[string][]string `json:"errors,omitempty"`
	Config  *oci.Spec           `json:"config,omitempty"`
	Version string              `json:"version,omitempty"`
	Error   string              `json:"error,omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if err := out.Encode(reply(lines.Bytes())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// reply answers one request; a panic of the library is an answer, too.
func reply(line []byte) (result answer) {
	defer func() {
		if cause := recover(); cause != nil {
			result = answer{Error: fmt.Sprintf("panic: %v", cause)}
		}
	}()
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Error: "bad request: " + err.Error()}
	}
	switch asked.Op {
	case "load":
		return load(asked.Files)
	case "inject":
		return inject(asked)
	case "minimum":
		version, err := specs.MinimumRequiredVersion(asked.Spec)
		if err != nil {
			return answer{Error: err.Error()}
		}
		return answer{Version: version}
	}
	return answer{Error: "unknown op " + asked.Op}
}

func load(files map[string]string) answer {
	directory, err := os.MkdirTemp("", "cdi-oracle-")
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer os.RemoveAll(directory)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o644); err != nil {
			return answer{Error: err.Error()}
		}
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(directory), cdi.WithAutoRefresh(false))
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Devices: sorted(cache.ListDevices()), Errors: faults(cache)}
}

func inject(asked request) answer {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(asked.Dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return answer{Error: err.Error()}
	}
	if asked.Config == nil {
		asked.Config = &oci.Spec{}
	}
	missing, err := cache.InjectDevices(asked.Config, asked.Devices...)
	if err != nil {
		return answer{Error: fmt.Sprintf("%v %v", err, missing), Errors: faults(cache)}
	}
	return answer{Config: asked.Config}
}

func faults(cache *cdi.Cache) map[string][]string {
	result := map[string][]string{}
	for path, errs := range cache.GetErrors() {
		for _, err := range errs {
			result[filepath.Base(path)] = append(result[filepath.Base(path)], err.Error())
		}
	}
	return result
}

func sorted(names []string) []string {
	sort.Strings(names)
	return names
}
