package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// loadFile keeps the text of each value: 007 remains 007, although YAML reads the number 7.
func (l *loader) loadFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return err
	}
	values := map[string]any{}
	if len(document.Content) > 0 {
		if document.Content[0].Kind != yaml.MappingNode {
			return errors.New("is not a list of settings in the form key: value")
		}
		l.collect(path, "", document.Content[0], values)
	}
	for _, s := range l.settings {
		if _, ok := values[s.Key]; ok && s.isSecret() {
			l.FileSecrets = append(l.FileSecrets, s.Key)
		}
	}
	l.applyLayer(values, func(Setting) string { return path })
	return nil
}

// collect adds the settings of group to values. It puts prefix before their keys.
func (l *loader) collect(path, prefix string, group *yaml.Node, values map[string]any) {
	for i := 0; i+1 < len(group.Content); i += 2 {
		key, node := prefix+group.Content[i].Value, resolveAlias(group.Content[i+1])
		known := slices.ContainsFunc(l.settings, func(s Setting) bool { return s.Key == key })
		_, twice := values[key]
		switch {
		case !known && node.Kind == yaml.MappingNode && (len(node.Content) > 0 || l.isGroup(key)):
			l.collect(path, key+".", node, values)
		case !known:
			l.errs = append(l.errs, fmt.Errorf("%s (%s): unknown setting; did you mean %s?", key, path, nearest(key, l.keys())))
		case twice:
			l.errs = append(l.errs, fmt.Errorf("%s (%s): is given twice", key, path))
		default:
			values[key] = content(node)
		}
	}
}

// content returns the value of a node for [Setting.set].
func content(node *yaml.Node) any {
	switch {
	case node.Kind == yaml.MappingNode:
		return errors.New("is a group, but must be a single value")
	case node.Tag == "!!null":
		return nil
	case node.Kind == yaml.ScalarNode:
		return node.Value
	}
	var list []string
	for _, element := range node.Content {
		text, ok := content(resolveAlias(element)).(string)
		if text = strings.TrimSpace(text); !ok || text == "" || strings.Contains(text, ",") {
			return errors.New("contains an element that is empty, has a comma, or is not text")
		}
		list = append(list, text)
	}
	return list
}

func resolveAlias(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

func (l *loader) keys() []string {
	keys := make([]string, len(l.settings))
	for i, s := range l.settings {
		keys[i] = s.Key
	}
	return keys
}

func (l *loader) isGroup(key string) bool {
	return slices.ContainsFunc(l.settings, func(s Setting) bool { return strings.HasPrefix(s.Key, key+".") })
}
