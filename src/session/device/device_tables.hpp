// Holds tables in device memory of the tensors of each bucket that has several, for kernels that read and write them
// where they lie. A table is written when its tensors, or their addresses, have changed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exchange/stream/stream_device.hpp"
#include "kernels/device/jobs.hpp"
#include "plan/plan.hpp"

namespace gradwire::session {

class DeviceTables {
 public:
  /// `device` must outlive this.
  explicit DeviceTables(exchange::StreamDevice& device) : device_(device) {}

  /// Makes room for the tables of a bucket. It must not be called during capture, unless there is room already.
  void reserve(const plan::Bucket& bucket);

  struct Tables {
    kernels::PieceTable input = {};
    kernels::PieceTable output = {};
  };
  /// Enqueues the writing of the tables, unless that was done before, and returns them. `inputs` and `outputs` are the
  /// same pieces in order, none empty, except that an input may be null. A captured step writes them each time that it
  /// is replayed. `backend` is the device's, or that of a dry run.
  [[nodiscard]] Tables write(exchange::StreamBackend& backend, std::uint32_t bucket,
                             std::span<const kernels::CopyPiece> inputs, std::span<const kernels::CopyPiece> outputs);

 private:
  struct OfBucket {
    kernels::Piece* memory = nullptr;  // the table of outputs, and behind it that of inputs
    std::size_t room = 0;              // pieces of one table
    std::vector<kernels::Piece> written = {};
  };

  exchange::StreamDevice& device_;
  std::vector<OfBucket> buckets_;  // by bucket
  bool captured_ = false;          // replays write tables from now on
};

}  // namespace gradwire::session
