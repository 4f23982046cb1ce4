// The kernels and the functions that launch them, as the tests' emulator runs them.
#include "kernels/device/operations.cuh"
#include "kernels/device/status.cuh"
