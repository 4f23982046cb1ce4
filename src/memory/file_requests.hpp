// Asynchronous reads and writes of one file: by io_uring where the system allows it, otherwise by threads that call
// pread() and pwrite().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace gradwire::memory {

/// Memory, sizes and offsets of requests are multiples of this many bytes, which O_DIRECT may need.
inline constexpr std::size_t kFileUnit = 4096;

enum class FileBackend : std::uint8_t {
  automatic,  // the one that GRADWIRE_FILE_IO names; otherwise io_uring, or threads where that is not available
  io_uring,
  threads,
};
[[nodiscard]] std::string_view to_string(FileBackend backend) noexcept;

struct FileRequest {
  std::uint32_t slot = 0;  // names the request to the caller
  bool writes = false;
  std::uint64_t offset = 0;  // bytes from the begin of the file
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
};

/// Says how a request ended.
struct FileResult {
  std::uint32_t slot = 0;
  std::int64_t bytes = 0;  // fewer than were asked for, or a negative errno, where it failed
};

/// Makes requests and tells when they have ended. The destructor is called when none is under way.
class FileRequests {
 public:
  FileRequests() = default;
  FileRequests(const FileRequests&) = delete;
  FileRequests& operator=(const FileRequests&) = delete;
  virtual ~FileRequests() = default;

  /// Begins a request; no more than `in_flight` of them may be under way. It returns false if the system does not take
  /// the request, which the caller then makes by itself. One thread at a time may call this.
  [[nodiscard]] virtual bool begin(const FileRequest& request) = 0;
  /// Appends the requests that have ended since the last call; if `waits`, it waits until there is one. One thread at a
  /// time may call this, also while another one calls begin().
  virtual void collect(std::vector<FileResult>& ended, bool waits) = 0;
};

/// Makes the requests of one file: of a descriptor that outlives the object, at most `in_flight` at once.
using MakeFileRequests = std::function<std::unique_ptr<FileRequests>(int descriptor, std::uint32_t in_flight)>;

/// Returns null where the system does not allow it: a kernel before 5.6, io_uring_disabled, or a filter of system
/// calls.
[[nodiscard]] std::unique_ptr<FileRequests> make_ring(int descriptor, std::uint32_t in_flight);
/// Throws Error(unsupported) where no thread can be started.
[[nodiscard]] std::unique_ptr<FileRequests> make_file_threads(int descriptor, std::uint32_t in_flight);

}  // namespace gradwire::memory
