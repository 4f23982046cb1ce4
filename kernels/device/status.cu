#include "kernels/device/status.cuh"
