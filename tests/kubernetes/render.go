// SPDX-License-Identifier: MIT

// render TEMPLATES CHART NAMESPACE RELEASE [KEY=JSON]...: writes what `helm template` would of the chart's templates of such names
// (*.yaml, NOTES.txt), if it needs no more of Helm than this:
// .Values, .Release, .Files, sprig's functions, toYaml, fromYaml. Helm itself is not in Debian; this is its template engine
// (text/template) with its functions (sprig), of Debian's packages.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

type files struct{ folder string }

func (f files) Get(name string) string {
	content, err := os.ReadFile(filepath.Join(f.folder, name))
	if err != nil {
		return "" // as Helm does
	}
	return string(content)
}

// By path inside of the chart, as in Helm.
func (f files) Glob(pattern string) map[string][]byte {
	names, err := filepath.Glob(filepath.Join(f.folder, pattern))
	check(err)
	all := map[string][]byte{}
	for _, name := range names {
		content, err := os.ReadFile(name)
		check(err)
		inside, err := filepath.Rel(f.folder, name)
		check(err)
		all[inside] = content
	}
	return all
}

func toYaml(value interface{}) string {
	text, err := yaml.Marshal(value)
	check(err)
	return strings.TrimSuffix(string(text), "\n")
}

func fromYaml(text string) map[string]interface{} {
	value := map[string]interface{}{}
	check(yaml.Unmarshal([]byte(text), &value))
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func set(values map[string]interface{}, assignment string) {
	key, text, _ := strings.Cut(assignment, "=")
	var value interface{}
	check(json.Unmarshal([]byte(text), &value))
	parts := strings.Split(key, ".")
	for _, part := range parts[:len(parts)-1] {
		values = values[part].(map[string]interface{})
	}
	values[parts[len(parts)-1]] = value
}

func main() {
	templates, chart, namespace, release := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	values := fromYaml(files{chart}.Get("values.yaml"))
	for _, assignment := range os.Args[5:] {
		set(values, assignment)
	}
	scope := map[string]interface{}{"Values": values, "Files": files{chart}, "Release": map[string]interface{}{"Name": release, "Namespace": namespace}}
	functions := sprig.TxtFuncMap()
	functions["toYaml"], functions["fromYaml"] = toYaml, fromYaml
	names, err := filepath.Glob(filepath.Join(chart, "templates", templates))
	check(err)
	sort.Strings(names)
	for _, name := range names {
		content, err := os.ReadFile(name)
		check(err)
		t, err := template.New(name).Funcs(functions).Option("missingkey=zero").Parse(string(content))
		check(err)
		check(t.Execute(os.Stdout, scope))
	}
}
