// The few functions of a device that check programs need: memory with guards around it, streams, copies.
// device_cuda.cpp implements the real one; device_emulated.cpp keeps it on the host, so that the programs are tested
// without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace gradwire::gpu {

using Bytes = std::vector<std::byte>;

/// Describes the device in a line; throws if there is none (why_no_device() says so without throwing).
[[nodiscard]] std::string describe_device();
/// Returns an empty text if there is a device that runs this program's kernels; otherwise what is missing, in CUDA's
/// words.
[[nodiscard]] std::string why_no_device();

void* device_allocate(std::size_t bytes);
void device_free(void* memory) noexcept;
void upload(void* to, const void* from, std::size_t bytes);    // after all enqueued work
void download(void* to, const void* from, std::size_t bytes);  // likewise
/// Waits for everything; throws the error of an earlier kernel.
void synchronize();
/// Tells a checker of accesses that no kernel may access these bytes, or that nothing was stored in them yet. GPUs have
/// no such checker; the PTX interpreter is one.
void forbid(const void* from, std::size_t bytes);
void undefine(const void* from, std::size_t bytes);
/// Lets kernels' stores to these bytes get lost from now on, which only the interpreter can: returns whether it does.
[[nodiscard]] bool lose(const void* at, std::size_t bytes);
[[nodiscard]] void* make_stream();
void free_stream(void* stream) noexcept;

/// Device memory with marks on both sides, `shift` bytes past a 256-byte boundary.
class Memory {
 public:
  explicit Memory(std::size_t bytes, std::size_t shift = 0)
      : bytes_(bytes), begin_(kGuard + shift), whole_(bytes + shift + 2 * kGuard, kMark) {
    base_ = static_cast<std::byte*>(device_allocate(whole_.size()));
    upload(base_, whole_.data(), whole_.size());
    forbid(base_, begin_);
    forbid(data() + bytes_, whole_.size() - begin_ - bytes_);
    undefine(data(), bytes_);
  }
  explicit Memory(std::span<const std::byte> from, std::size_t shift = 0) : Memory(from.size(), shift) {
    upload(data(), from.data(), from.size());
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Memory(Memory&& other) noexcept
      : bytes_(other.bytes_), begin_(other.begin_), whole_(std::move(other.whole_)), base_(other.base_) {
    other.base_ = nullptr;
  }
  Memory& operator=(Memory&&) = delete;
  ~Memory() {
    if (base_ != nullptr) {
      device_free(base_);
    }
  }

  [[nodiscard]] std::byte* data() const { return base_ + begin_; }
  [[nodiscard]] std::uint8_t* frame() const { return reinterpret_cast<std::uint8_t*>(data()); }
  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data());
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  /// Returns its content; sets `intact` to whether the memory around it is unchanged.
  [[nodiscard]] Bytes read(bool* intact = nullptr) const {
    Bytes now(whole_.size());
    download(now.data(), base_, now.size());
    if (intact != nullptr) {
      *intact = true;
      for (std::size_t i = 0; i < now.size(); ++i) {
        const bool inside = i >= begin_ && i < begin_ + bytes_;
        *intact = *intact && (inside || now[i] == kMark);
      }
    }
    return {now.begin() + static_cast<std::ptrdiff_t>(begin_),
            now.begin() + static_cast<std::ptrdiff_t>(begin_ + bytes_)};
  }
  void write(std::span<const std::byte> from) const { upload(data(), from.data(), from.size()); }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr std::byte kMark{0xA5};
  std::size_t bytes_;
  std::size_t begin_;
  Bytes whole_;
  std::byte* base_ = nullptr;
};

class Stream {
 public:
  Stream() : stream_(make_stream()) {}
  ~Stream() { free_stream(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] void* get() const { return stream_; }

 private:
  void* stream_;
};

template <class T>
[[nodiscard]] std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

}  // namespace gradwire::gpu
