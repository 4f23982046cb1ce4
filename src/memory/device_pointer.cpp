#include "memory/device_pointer.hpp"

#include <dlfcn.h>

#include <cstdint>

#include "base/loaded_library.hpp"
#include "gradwire/error.hpp"

namespace gradwire::memory {
namespace {

// The declaration of cuda.h: CUresult is an int with 0 for success, CUdeviceptr has 64 bits.
using GetAttribute = int (*)(void* value, int attribute, std::uint64_t pointer);

constexpr int kMemoryType = 2;         // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr int kIsManaged = 8;          // CU_POINTER_ATTRIBUTE_IS_MANAGED
constexpr unsigned kDeviceMemory = 2;  // CU_MEMORYTYPE_DEVICE, managed memory too

// The driver's function; null as long as the process has not loaded CUDA.
GetAttribute driver() noexcept {
  static LoadedLibrary cuda("libcuda.so.1");
  void* library = cuda.handle();
  if (library == nullptr) {
    return nullptr;
  }
  static const auto function = reinterpret_cast<GetAttribute>(dlsym(library, "cuPointerGetAttribute"));
  return function;
}

}  // namespace

bool is_device_memory(const void* data) noexcept {
  const GetAttribute ask = driver();
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  unsigned type = 0;
  if (ask == nullptr || ask(&type, kMemoryType, address) != 0 || type != kDeviceMemory) {
    return false;
  }
  unsigned managed = 0;
  return ask(&managed, kIsManaged, address) != 0 || managed == 0;
}

void require_host_memory(const void* data, const std::string& what) {
  if (is_device_memory(data)) {
    throw Error(ErrorCode::invalid_argument,
                what +
                    " is in the memory of a GPU, and this session works on host memory; make it with "
                    "gradwire/nccl.hpp, or with gradwire/cuda.hpp over MPI");
  }
}

}  // namespace gradwire::memory
