// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt_test

import (
	"context"
	"fmt"
	"log"

	"github.com/easyparallel/epl/pjrt"
)

// A program is compiled once and run on the first device.
func Example() {
	ctx := context.Background()
	path, err := pjrt.Find("cuda")
	if err != nil {
		log.Fatal(err) // says what to install
	}
	plugin, err := pjrt.Load(path)
	if err != nil {
		log.Fatal(err)
	}
	defer plugin.Close()
	client, err := plugin.NewClient(ctx, pjrt.ClientOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := client.Close(); err != nil {
			log.Print(err) // names what was not closed
		}
	}()

	double, err := client.Compile([]byte(`module @double {
		func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
			%y = stablehlo.add %x, %x : tensor<2xf32>
			return %y : tensor<2xf32>
		}
	}`), pjrt.CompileOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer double.Close()

	x, err := client.Devices()[0].DefaultMemory.FromHost(floats(1, 2), pjrt.F32, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Close()
	outputs, done, err := double.Execute([][]*pjrt.Buffer{{x}}, pjrt.ExecuteOptions{})
	if err != nil {
		log.Fatal(err)
	}
	y := outputs[0][0]
	defer y.Close()

	host := make([]byte, 8)
	copied, err := y.ToHost(host) // waits for the execution, on the device
	if err != nil {
		log.Fatal(err)
	}
	if err := pjrt.Finish(ctx, append(done, copied)...); err != nil {
		log.Fatal(err)
	}
	fmt.Println(toFloats(host))
}
