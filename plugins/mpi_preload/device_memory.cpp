#include "plugins/mpi_preload/device_memory.hpp"

#include <dlfcn.h>

#include <optional>
#include <string>

#include "base/loaded_library.hpp"
#include "gradwire/error.hpp"

namespace gradwire::mpi_preload {
namespace {

// The CUDA driver's functions as cuda.h declares them: CUresult is an int with 0 for success, CUdeviceptr 64 bits.
struct Driver {
  int (*get_attribute)(void* value, int attribute, std::uint64_t pointer);
  int (*to_host)(void* to, std::uint64_t from, std::size_t bytes);
  int (*to_device)(std::uint64_t to, const void* from, std::size_t bytes);
};

constexpr int kMemoryTypeAttribute = 2;  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr unsigned kDeviceMemory = 2;    // CU_MEMORYTYPE_DEVICE, managed memory too

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

std::optional<Driver> functions_of(void* library) {
  Driver driver{};
  const bool all = find(library, "cuPointerGetAttribute", driver.get_attribute) &&
                   find(library, "cuMemcpyDtoH_v2", driver.to_host) &&
                   find(library, "cuMemcpyHtoD_v2", driver.to_device);
  return all ? std::optional(driver) : std::nullopt;
}

// The driver's functions; null as long as the process has not loaded CUDA.
const Driver* driver() {
  static LoadedLibrary cuda("libcuda.so.1");
  void* library = cuda.handle();
  if (library == nullptr) {
    return nullptr;
  }
  static const std::optional<Driver> functions = functions_of(library);
  return functions ? &*functions : nullptr;
}

void check(int result, const char* what) {
  if (result != 0) {
    throw Error(ErrorCode::transport, std::string(what) + ": CUDA error " + std::to_string(result));
  }
}

std::uint64_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

bool on_device(const void* data) {
  unsigned type = 0;
  const Driver* cuda = driver();
  return cuda != nullptr && cuda->get_attribute(&type, kMemoryTypeAttribute, address(data)) == 0 &&
         type == kDeviceMemory;
}

}  // namespace

bool is_device_memory(const void* data) noexcept { return on_device(data); }

HostBuffer::HostBuffer(void* data, std::uint64_t bytes, bool read) : data_(data) {
  if (bytes == 0 || !on_device(data)) {
    return;
  }
  copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  if (read) {
    check(driver()->to_host(copy_.get(), address(data), bytes), "copying a gradient from the GPU (cuMemcpyDtoH)");
  }
}

void HostBuffer::write_back(std::uint64_t bytes) const {
  if (copy_ && bytes > 0) {
    check(driver()->to_device(address(data_), copy_.get(), bytes), "copying a result to the GPU (cuMemcpyHtoD)");
  }
}

}  // namespace gradwire::mpi_preload
