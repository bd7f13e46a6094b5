// Package v2 refuses what the YAML components (ConfigFile, ConfigGroup, Chart)
// would register; see package kubernetes.
package v2

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// RegisterResource returns an error that says what to use instead.
func RegisterResource(
	_ *pulumi.Context, apiVersion, kind, name string, _ pulumi.Input, _ ...pulumi.ResourceOption,
) (pulumi.CustomResource, error) {
	return nil, fmt.Errorf(
		"%s %s %q: this build of the Kubernetes provider leaves out the yaml and helm v4 components; "+
			"state the object as a resource, or install Pulumi's own provider", apiVersion, kind, name)
}
