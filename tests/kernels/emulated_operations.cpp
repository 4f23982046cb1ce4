// Compiles the kernels and the functions that launch them for the tests' emulator.
#include "kernels/device/operations.cuh"
#include "kernels/device/status.cuh"
