// Command quantity answers, one JSON record per line, what Kubernetes' own
// quantity and version arithmetic makes of two texts.
//
//	{"kind":"quantity","a":"1.5Gi","b":"1M"}
//	{"kind":"semver","a":"1.0.0-alpha","b":"1.0.0"}
//
// b is optional. Every answer has "error" when a text is refused.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/blang/semver/v4"
	"k8s.io/apimachinery/pkg/api/resource"
)

type question struct {
	Kind string  `json:"kind"`
	A    string  `json:"a"`
	B    *string `json:"b"`
}

// One amount; integers are sent as text, as JSON readers may round them.
type amount struct {
	Text   string `json:"text"`
	Format string `json:"format"`
	Value  string `json:"value"`
	Milli  string `json:"milli"`
	Nano   string `json:"nano"`
	Int64  string `json:"int64"` // empty: not an integer for AsInt64
	Float  string `json:"float"` // IEEE bits in hex
	Sign   int    `json:"sign"`
}

type answer struct {
	Error         string  `json:"error,omitempty"`
	A             *amount `json:"a,omitempty"`
	B             *amount `json:"b,omitempty"`
	Sum           *amount `json:"sum,omitempty"`
	Diff          *amount `json:"diff,omitempty"`
	Compare       int     `json:"compare"`
	Version       string  `json:"version,omitempty"`
	Tolerant      string  `json:"tolerant,omitempty"`
	TolerantError string  `json:"tolerantError,omitempty"`
}

// Methods of a quantity may change how it is held, so every look is at a copy.
func look(q resource.Quantity) *amount {
	fresh := func() *resource.Quantity {
		c := q.DeepCopy()
		return &c
	}
	whole := ""
	if i, ok := fresh().AsInt64(); ok {
		whole = strconv.FormatInt(i, 10)
	}
	return &amount{
		Text:   fresh().String(),
		Format: string(q.Format),
		Value:  strconv.FormatInt(fresh().Value(), 10),
		Milli:  strconv.FormatInt(fresh().MilliValue(), 10),
		Nano:   strconv.FormatInt(fresh().ScaledValue(resource.Nano), 10),
		Int64:  whole,
		Float:  strconv.FormatUint(math.Float64bits(fresh().AsApproximateFloat64()), 16),
		Sign:   fresh().Sign(),
	}
}

func quantities(q question) answer {
	a, err := resource.ParseQuantity(q.A)
	if err != nil {
		return answer{Error: err.Error()}
	}
	out := answer{A: look(a)}
	if q.B == nil {
		return out
	}
	b, err := resource.ParseQuantity(*q.B)
	if err != nil {
		return answer{Error: err.Error()}
	}
	out.B = look(b)
	sum, diff, left := a.DeepCopy(), a.DeepCopy(), a.DeepCopy()
	sum.Add(b.DeepCopy())
	diff.Sub(b.DeepCopy())
	out.Sum, out.Diff, out.Compare = look(sum), look(diff), left.Cmp(b.DeepCopy())
	return out
}

func versions(q question) answer {
	out := answer{}
	if tolerant, err := semver.ParseTolerant(q.A); err != nil {
		out.TolerantError = err.Error()
	} else {
		out.Tolerant = tolerant.String()
	}
	a, err := semver.Parse(q.A)
	if err != nil {
		out.Error = err.Error()
		return out
	}
	out.Version = a.String()
	if q.B == nil {
		return out
	}
	b, err := semver.Parse(*q.B)
	if err != nil {
		out.Error = err.Error()
		return out
	}
	out.Compare = a.Compare(b)
	return out
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<16), 1<<24)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for lines.Scan() {
		var q question
		var result answer
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			fmt.Fprintln(os.Stderr, "not a question:", err)
			os.Exit(2)
		}
		switch q.Kind {
		case "quantity":
			result = quantities(q)
		case "semver":
			result = versions(q)
		default:
			fmt.Fprintf(os.Stderr, "unknown kind %q\n", q.Kind)
			os.Exit(2)
		}
		if err := encoder.Encode(result); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := out.Flush(); err != nil {
			os.Exit(1)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
