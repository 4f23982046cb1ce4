// Lets one text be host C++ and device code. Such text uses no std::, no exceptions, and memory through load and store
// only (payloads and tensors need not be aligned).
#ifndef GRADWIRE_KERNELS_PLATFORM_HPP
#define GRADWIRE_KERNELS_PLATFORM_HPP

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define GRADWIRE_HOST_DEVICE __host__ __device__
#else
#define GRADWIRE_HOST_DEVICE
#endif

namespace gradwire::kernels {

template <class To, class From>
GRADWIRE_HOST_DEVICE inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

/// Element `index` of an array of T at any address.
template <class T>
GRADWIRE_HOST_DEVICE inline T load(const void* array, std::uint32_t index) {
  T value;
  memcpy(&value, static_cast<const std::uint8_t*>(array) + std::size_t{index} * sizeof(T), sizeof value);
  return value;
}

template <class T>
GRADWIRE_HOST_DEVICE inline void store(void* array, std::uint32_t index, T value) {
  memcpy(static_cast<std::uint8_t*>(array) + std::size_t{index} * sizeof(T), &value, sizeof value);
}

GRADWIRE_HOST_DEVICE inline void fill_zero(std::uint8_t* bytes, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    bytes[i] = 0;
  }
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_PLATFORM_HPP
