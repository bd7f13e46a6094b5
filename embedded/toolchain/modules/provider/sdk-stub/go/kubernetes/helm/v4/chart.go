// Package v4 has the types that the signature of the Chart component names; see
// package kubernetes.
package v4

import "github.com/pulumi/pulumi/sdk/v3/go/pulumi"

// RepositoryOpts names a chart repository.
type RepositoryOpts struct {
	CaFile   pulumi.AssetOrArchive `pulumi:"caFile"`
	CertFile pulumi.AssetOrArchive `pulumi:"certFile"`
	KeyFile  pulumi.AssetOrArchive `pulumi:"keyFile"`
	Password *string               `pulumi:"password"`
	Repo     *string               `pulumi:"repo"`
	Username *string               `pulumi:"username"`
}

// PostRenderer is a command that rendered manifests are piped through.
type PostRenderer struct {
	Args    []string `pulumi:"args"`
	Command string   `pulumi:"command"`
}

type (
	// RepositoryOptsInput is RepositoryOpts, known or to come.
	RepositoryOptsInput interface{ pulumi.Input }
	// PostRendererInput is PostRenderer, known or to come.
	PostRendererInput interface{ pulumi.Input }
)
