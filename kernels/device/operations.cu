#include "kernels/device/operations.cuh"
