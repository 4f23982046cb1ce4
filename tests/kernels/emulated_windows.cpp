// Compiles the kernels over windows for the tests' emulator.
#include "kernels/device/window_operations.cuh"
