package ir

// NormGradient names functions of the gradient of a layer norm y = (x − μ)/σ·gain + offset, over the last axis, which a runner may have a kernel
// for. What the function computes is its body, as always. Its parameters are the gradient of y and x, in bfloat16; μ and 1/σ in float32, with one
// number for each row; gain in float32; and, if there is a sixth, another gradient of x in bfloat16. Its results are the gradient of x, with the
// other one added, in bfloat16, and those of gain and offset.
const NormGradient = "epl.norm_gradient"
