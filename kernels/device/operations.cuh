// The functions of kernels/device/operations.hpp, which choose the kernel for a job, as one unit: for the tests'
// emulated library, and for tools that read what a compiler made of the kernels. The CUDA library compiles the parts
// side by side.
#include "kernels/device/operations/elements.cu"
#include "kernels/device/operations/frames.cu"
#include "kernels/device/operations/lists.cu"
#include "kernels/device/operations/sums.cu"
#include "kernels/device/operations/sums_of_any.cu"
