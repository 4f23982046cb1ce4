// Windows: memory of each rank's device into which the kernels of all ranks of a node write. Implementations:
// CudaPeerWindows for ranks of one process and, by CUDA IPC, of several; NcclPeerWindows where that fails; tests have
// their own.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace gradwire::memory {

/// Tells all ranks a text; element r of the result is rank r's. Every rank calls it as often. Blocks.
using AllGather = std::function<std::vector<std::string>(const std::string& mine)>;

class PeerWindows {
 public:
  PeerWindows() = default;
  PeerWindows(const PeerWindows&) = delete;
  PeerWindows& operator=(const PeerWindows&) = delete;
  virtual ~PeerWindows() = default;

  /// The window of a rank, at the address by which this rank's kernels access it. Aligned to 256 bytes.
  [[nodiscard]] virtual std::byte* window(int rank) const noexcept = 0;
  /// From now on the memory stays for as long as the process, since another rank may still write to it.
  virtual void leak() noexcept = 0;
};

}  // namespace gradwire::memory
