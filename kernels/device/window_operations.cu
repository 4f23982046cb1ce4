#include "kernels/device/window_operations.cuh"
