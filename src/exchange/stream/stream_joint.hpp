// Makes calls together, each of one lane: their jobs of a kind are one launch, and their frames between two ranks one
// message. Frames of a hop lie in one block, with those that one rank sends to another beside each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "exchange/stream/stream_backend.hpp"
#include "kernels/device/jobs.hpp"

namespace gradwire::exchange {

/// Describes a piece of memory with several frames.
struct FrameBlock {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  std::uint32_t slots = 0;  // number of its slots that are still needed
  std::array<std::uint64_t, 2>
      last_groups{};  // by queue of messages, the last group that sends or receives one of them
};

class Joint {
 public:
  /// `backend` must outlive it.
  explicit Joint(StreamBackend& backend) : backend_(backend) {}

  // These functions take work of single lanes, which launch() and communicate() enqueue.
  void add(const kernels::HeaderJob& job) { headers_.push_back(job); }
  void add(const kernels::EncodeJob& job) { encoders_.push_back(job); }
  void add(const kernels::ReduceJob& job) { sums_.push_back(job); }
  void add(const kernels::DecodeJob& job) { decoders_.push_back(job); }
  /// Takes a frame that lies behind the last one to, or from, that rank.
  void add_message(bool sends, int peer, std::byte* data, std::uint64_t bytes);
  /// Releases the memory behind the next launch().
  void release(std::byte* memory) { released_.push_back(memory); }

  void launch();
  /// Enqueues the messages, inside a group.
  void communicate();

  std::uint32_t pitch = 0;              // from a frame of a lane to its next one
  std::vector<FrameBlock> blocks = {};  // of all lanes, in the order of each lane's own

 private:
  struct Message {
    bool sends;
    int peer;
    std::byte* data;
    std::uint64_t bytes;
  };

  StreamBackend& backend_;
  std::vector<kernels::HeaderJob> headers_ = {};
  std::vector<kernels::EncodeJob> encoders_ = {};
  std::vector<kernels::ReduceJob> sums_ = {};
  std::vector<kernels::DecodeJob> decoders_ = {};
  std::vector<Message> messages_ = {};
  std::vector<std::byte*> released_ = {};
};

}  // namespace gradwire::exchange
