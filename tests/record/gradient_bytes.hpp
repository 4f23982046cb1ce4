// Files of gradients, built byte by byte as NumPy and safetensors write them.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace gradwire::test {

inline void write_bytes(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

template <typename Number>
std::string bytes_of(const std::vector<Number>& values) {
  std::string bytes(values.size() * sizeof(Number), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", as numpy.save writes it.
inline std::string npy_dict(const std::string& descr, const std::string& shape, bool fortran = false) {
  return "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': " + shape + ", }";
}

/// A whole file of format version `major`.0: the header is padded to 64 bytes, as NumPy from 1.14 on does.
inline std::string npy(int major, std::string dict, const std::string& elements) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(major);
  bytes += '\0';
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  while ((bytes.size() + length_bytes + dict.size() + 1) % 64 != 0) {
    dict += ' ';
  }
  dict += '\n';
  for (std::size_t i = 0; i < length_bytes; ++i) {
    bytes += static_cast<char>(dict.size() >> (8 * i));
  }
  return bytes + dict + elements;
}

inline std::string safetensors(const std::string& header, const std::string& values, std::uint64_t claimed = 0) {
  return bytes_of<std::uint64_t>({claimed == 0 ? header.size() : claimed}) + header + values;
}

}  // namespace gradwire::test
