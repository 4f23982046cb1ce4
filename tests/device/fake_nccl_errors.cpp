// Functions of NCCL that a transport calls and tests/nccl_preload/fake_nccl.cpp leaves out.
#include <nccl.h>

extern "C" {
ncclResult_t ncclCommCuDevice(ncclComm_t /*comm*/, int* device) { return *device = 0, ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t /*result*/) { return "an error of the fake library"; }
const char* ncclGetLastError(ncclComm_t /*comm*/) { return ""; }
}
