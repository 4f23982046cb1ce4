// A CUDA driver without a GPU: "device memory" that faults when the CPU touches it, and that only the driver's copies
// can reach. Its file is named libcuda.so.1.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {
char* g_device = nullptr;  // memory that the job gets
char* g_behind = nullptr;  // the same pages, which may be touched
std::size_t g_bytes = 0;

char* behind(std::uint64_t device) {
  const auto offset = device - reinterpret_cast<std::uintptr_t>(g_device);
  return offset < g_bytes ? g_behind + offset : nullptr;
}
}  // namespace

extern "C" {

void* fake_device_memory(std::size_t bytes) {
  const int file = memfd_create("device", 0);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    return nullptr;
  }
  g_bytes = bytes;
  g_device = static_cast<char*>(mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0));
  g_behind = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  return g_device;
}

int cuPointerGetAttribute(void* value, int attribute, std::uint64_t pointer) {
  if (attribute != 2 || behind(pointer) == nullptr) {
    return 1;  // CUDA_ERROR_INVALID_VALUE, as for host memory
  }
  const unsigned device = 2;
  std::memcpy(value, &device, sizeof device);
  return 0;
}

int cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes) {
  std::memcpy(to, behind(from), bytes);
  return 0;
}

int cuMemcpyHtoD_v2(std::uint64_t to, const void* from, std::size_t bytes) {
  std::memcpy(behind(to), from, bytes);
  return 0;
}
}
