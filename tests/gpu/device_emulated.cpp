// Keeps device memory on the host, for programs that are linked with the emulated kernels.
#include <cstdlib>
#include <new>

#include "tests/gpu/device.hpp"

namespace gradwire::gpu {

std::string describe_device() { return "emulated on the host"; }
std::string why_no_device() { return std::getenv("GRADWIRE_NO_DEVICE") != nullptr ? "GRADWIRE_NO_DEVICE is set" : ""; }

void* device_allocate(std::size_t bytes) { return ::operator new (bytes, std::align_val_t{256}); }
void device_free(void* memory) noexcept { ::operator delete (memory, std::align_val_t{256}); }
void upload(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) {
    std::memcpy(to, from, bytes);
  }
}
void download(void* to, const void* from, std::size_t bytes) { upload(to, from, bytes); }
void synchronize() {}
void forbid(const void* /*from*/, std::size_t /*bytes*/) {}
void undefine(const void* /*from*/, std::size_t /*bytes*/) {}
bool lose(const void* /*at*/, std::size_t /*bytes*/) { return false; }
void* make_stream() { return nullptr; }
void free_stream(void* /*stream*/) noexcept {}

}  // namespace gradwire::gpu
