#include "codec/zstd.hpp"

#include <dlfcn.h>

#include <string>

#include "base/per_thread.hpp"
#include "codec/zstd_functions.hpp"
#include "gradwire/error.hpp"

namespace gradwire::codec {
namespace {

constexpr const char* kLibrary = "libzstd.so.1";
constexpr int kLevel = 1;

// Most of a byte plane is noise, or short runs of zeros at random places. Matches of a few bytes then cost more bits
// than the literals that they replace, and most of the time goes into them; long ones are found by a small table too.
constexpr int kLeastMatch = 7;  // bytes; zstd's most
constexpr int kHashBits = 6;    // zstd's fewest

// An enum of C travels as an int.
using Zstd = zstd::Functions<void, void, int>;

Zstd load() {
  const auto fail = [](const std::string& why) {
    throw Error(ErrorCode::unsupported,
                "needs " + std::string(kLibrary) + ", and " + why + "; install libzstd (libzstd1)");
  };
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    fail(why == nullptr ? "it cannot be loaded" : why);
  }
  Zstd functions;
  functions.for_each([&](const char* name, auto& function) {
    void* found = dlsym(library, name);
    if (found == nullptr) {
      fail("the one of this system is older than 1.4: it has no " + std::string(name));
    }
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  });
  return functions;
}

const Zstd& functions() {
  static const Zstd loaded = load();
  return loaded;
}

// The calling thread's contexts, each made when it is first needed.
class Contexts {
 public:
  Contexts() = default;
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;
  ~Contexts() {
    functions().free_compression(compression_);
    functions().free_decompression(decompression_);
  }

  void* compression() {
    if (compression_ == nullptr) {
      compression_ = made(functions().create_compression());
      functions().set_parameter(compression_, zstd::kCompressionLevel, kLevel);
      functions().set_parameter(compression_, zstd::kMinMatch, kLeastMatch);
      functions().set_parameter(compression_, zstd::kHashLog, kHashBits);
    }
    return compression_;
  }
  void* decompression() {
    if (decompression_ == nullptr) {
      decompression_ = made(functions().create_decompression());
    }
    return decompression_;
  }

 private:
  static void* made(void* context) {
    if (context == nullptr) {
      throw Error(ErrorCode::out_of_memory, "no memory for a context of libzstd; use fewer ranks on this node");
    }
    return context;
  }

  void* compression_ = nullptr;
  void* decompression_ = nullptr;
};

}  // namespace

void require_zstd(const std::string& user, const std::string& instead) {
  try {
    static_cast<void>(functions());
  } catch (const Error& error) {
    throw Error(error.code(), user + " " + error.what() + ", or " + instead);
  }
}

std::size_t zstd_compress(std::span<const std::byte> in, std::span<std::byte> out) {
  const std::size_t bytes =
      functions().compress(per_thread<Contexts>().compression(), out.data(), out.size(), in.data(), in.size());
  return functions().is_error(bytes) != 0 ? 0 : bytes;
}

bool zstd_decompress(std::span<const std::byte> in, std::span<std::byte> out) {
  const std::size_t bytes =
      functions().decompress(per_thread<Contexts>().decompression(), out.data(), out.size(), in.data(), in.size());
  return functions().is_error(bytes) == 0 && bytes == out.size();
}

}  // namespace gradwire::codec
