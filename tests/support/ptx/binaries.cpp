#include "tests/support/ptx/binaries.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "tests/support/ptx/queues.hpp"

namespace gradwire::ptx {
namespace {

// As fatbinary of CUDA 11 to 13 writes them.
struct Wrapper {
  std::uint32_t magic, version;
  const unsigned char* data;
  const void* file;
};
struct Header {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;
};
struct Entry {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;
};
constexpr std::uint32_t kHeaderMagic = 0xBA55ED50;
constexpr std::uint16_t kPtx = 1;

struct Binary {
  std::string text;
  std::unique_ptr<Module> module;  // read at the first use
};

struct Registered {
  Binary* binary;
  std::string name;
  Kernel* kernel = nullptr;
};

std::unordered_map<const void*, Registered>& kernels() {
  static auto* const all = new std::unordered_map<const void*, Registered>;
  return *all;
}

std::uint64_t allocate_variable(std::size_t bytes, std::string_view name) {
  void* const memory = std::aligned_alloc(256, (bytes + 511) / 256 * 256);
  Device::instance().memory.add(memory, bytes, std::string(name), true);
  return reinterpret_cast<std::uint64_t>(memory);
}

[[noreturn]] void end(const char* why) {
  std::fprintf(stderr, "ptx: %s; compile with -gencode arch=compute_90,code=compute_90 --no-compress\n", why);
  std::abort();
}

}  // namespace

void** register_binary(const void* wrapper) {
  const auto& outer = *static_cast<const Wrapper*>(wrapper);
  Header header;
  std::memcpy(&header, outer.data, sizeof header);
  if (header.magic != kHeaderMagic) {
    end("a fat binary of an unknown form");
  }
  const unsigned char* at = outer.data + header.header_bytes;
  const unsigned char* const last = at + header.bytes;
  while (at < last) {
    Entry entry;
    std::memcpy(&entry, at, sizeof entry);
    const char* const payload = reinterpret_cast<const char*>(at + entry.header_bytes);
    if (entry.kind == kPtx) {
      const std::string_view text(payload, strnlen(payload, entry.bytes));
      if (text.find(".version") == std::string_view::npos) {
        end("this program's PTX is compressed");
      }
      auto* const binary = new Binary{std::string(text), nullptr};
      return reinterpret_cast<void**>(binary);
    }
    at += entry.header_bytes + entry.bytes;
  }
  end("this program has no PTX");
}

void register_kernel(void** binary, const void* host, const char* name) {
  kernels()[host] = {reinterpret_cast<Binary*>(binary), name, nullptr};
}

Kernel& registered_kernel(const void* host) {
  const auto found = kernels().find(host);
  if (found == kernels().end()) {
    throw Finding("a launch of a function that is no kernel");
  }
  Registered& registered = found->second;
  if (registered.kernel == nullptr) {
    Binary& binary = *registered.binary;
    if (binary.module == nullptr) {
      binary.module = std::make_unique<Module>(std::move(binary.text), allocate_variable);
    }
    registered.kernel = &binary.module->kernel(registered.name);
  }
  return *registered.kernel;
}

}  // namespace gradwire::ptx
