// Create an experiment and read it with a generated client; print what it has, as JSON.
package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	"example/tbhub"
)

func main() {
	configuration := tbhub.NewConfiguration()
	configuration.Servers = tbhub.ServerConfigurations{{URL: os.Getenv("SERVER")}}
	api := tbhub.NewAPIClient(configuration).ExperimentsAPI
	ctx := context.WithValue(context.Background(), tbhub.ContextAccessToken, os.Getenv("TOKEN"))

	wanted := tbhub.NewNewExperiment()
	wanted.SetName("generated")
	wanted.SetTags([]string{"a"})
	made, _, err := api.CreateExperiment(ctx).NewExperiment(*wanted).Execute()
	if err != nil {
		panic(err)
	}
	read, _, err := api.ShowExperiment(ctx, made.ExperimentId).Execute()
	if err != nil {
		panic(err)
	}
	_, missing, _ := api.ShowExperiment(ctx, strings.Repeat("a", 22)).Execute()
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"name": read.Name, "tags": read.Tags, "missing": missing.StatusCode,
	})
}
