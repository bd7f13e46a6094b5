// Package kubernetes stands in for the generated Go SDK of Pulumi's Kubernetes
// provider. The provider uses five of its names, in its YAML and chart
// components; compiling the 66 generated packages takes ten minutes on two cores.
// Programs in Python, and every plain resource, never come near them.
package kubernetes

import "reflect"

// UntypedArgs carries the fields of one object of a manifest.
type UntypedArgs map[string]any

// ElementType makes UntypedArgs a pulumi.Input.
func (UntypedArgs) ElementType() reflect.Type { return reflect.TypeFor[map[string]any]() }
