// Shared by programs with sessions on a device: a few gradients, their results by sessions over host memory, and one
// rank's session over device memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gradwire/policy.hpp"
#include "gradwire/session.hpp"
#include "tests/gpu/check.hpp"
#include "tests/gpu/device.hpp"
#include "tests/gpu/device_cuda.hpp"

namespace gradwire::gpu {

inline constexpr std::size_t kTensors = 4;
inline constexpr std::uint64_t kCounts[kTensors] = {300000, 12289, 1, 70001};
inline constexpr std::uint64_t kSteps = 6;

// The policy is `deterministic`, since NCCL's own sums have their own order.
/// `joins`: all buckets are made together.
inline Policy session_policy(const std::string& codec, bool joins = false) {
  return Policy::parse("deterministic = true\n[defaults]\ncodec = \"" + codec +
                       "\"\nalgorithm = \"two_shot\"\nsmall = \"off\"\n[bucket]\nbytes = \"512KiB\"\n" +
                       (joins ? "[device]\njoin = \"256MiB\"\n" : ""));
}

inline std::vector<float> values_of(std::size_t tensor, int rank, std::uint64_t step) {
  std::vector<float> values(kCounts[tensor]);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = 0.1 * static_cast<double>(i) + static_cast<double>(tensor) + 0.3 * static_cast<double>(step);
    values[i] = static_cast<float>(std::sin(x) * (1 + rank));
  }
  return values;
}

/// Returns a tensor's scale: a positive number for each element, the same on all ranks.
inline std::vector<float> scale_of(std::size_t tensor) {
  std::vector<float> scale(kCounts[tensor]);
  for (std::size_t i = 0; i < scale.size(); ++i) {
    scale[i] = static_cast<float>(1.5 + std::sin(0.01 * static_cast<double>(i)));
  }
  return scale;
}

inline std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

using Results = std::vector<std::vector<float>>;  // all tensors of each step in turn

// Runs all ranks on the host, as threads; rank 0's results are those of every rank.
inline Results host_results(const Policy& policy, int world_size, bool scaled = false) {
  auto world = make_inproc_world(world_size);
  Results results;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      Session session(world[static_cast<std::size_t>(rank)], policy);
      Results gradients(kTensors);
      Results scales(kTensors);
      std::vector<TensorId> ids;
      for (std::size_t t = 0; t < kTensors; ++t) {
        gradients[t].resize(kCounts[t]);
        scales[t] = scaled ? scale_of(t) : std::vector<float>();
        ids.push_back(
            session.add("t" + std::to_string(t), view(gradients[t].data(), kCounts[t]), {.scale = scales[t]}));
      }
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        for (std::size_t t = 0; t < kTensors; ++t) {
          const auto values = values_of(t, rank, step);
          std::copy(values.begin(), values.end(), gradients[t].begin());
          session.ready(ids[t]);
        }
        session.finish();
        if (rank == 0) {
          results.insert(results.end(), gradients.begin(), gradients.end());
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return results;
}

/// One rank's gradients on the device, and its session over them on `stream`.
class Trainer {
 public:
  Trainer(int rank, cudaStream_t stream, Session session, bool scaled = false)
      : rank_(rank), stream_(stream), session_(std::move(session)) {
    for (std::size_t t = 0; t < kTensors; ++t) {
      gradients_.push_back(static_cast<float*>(device_allocate(kCounts[t] * sizeof(float))));
      std::span<const float> scale;
      if (scaled) {
        const std::vector<float> values = scale_of(t);
        scales_.push_back(static_cast<float*>(device_allocate(kCounts[t] * sizeof(float))));
        upload(scales_.back(), values.data(), bytes_of(values).size());
        scale = {scales_.back(), kCounts[t]};
      }
      ids_.push_back(session_.add("t" + std::to_string(t), view(gradients_[t], kCounts[t]), {.scale = scale}));
    }
  }
  ~Trainer() {
    for (float* scale : scales_) {
      device_free(scale);
    }
    for (float* gradient : gradients_) {
      device_free(gradient);
    }
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Enqueues the gradients on the caller's stream, and does not wait: the session must.
  void load(std::uint64_t step) {
    for (std::size_t t = 0; t < kTensors; ++t) {
      load(t, step);
    }
  }
  /// Enqueues a whole step, in which gradients come one by one and the last one first, as in a backward pass.
  void train(std::uint64_t step) {
    for (std::size_t t = kTensors; t-- > 0;) {
      load(t, step);
      session_.ready(ids_[t]);
    }
    session_.finish();
  }
  /// Enqueues a whole step, and returns its last ticket.
  Ticket enqueue() {
    Ticket last;
    for (const TensorId id : ids_) {
      last = session_.ready(id);
    }
    session_.finish();
    return last;
  }
  // Reads on the caller's stream: finish() must have ordered it after the results.
  [[nodiscard]] Results results() const {
    Results got;
    for (std::size_t t = 0; t < kTensors; ++t) {
      got.emplace_back(kCounts[t]);
      cuda(cudaMemcpyAsync(got[t].data(), gradients_[t], bytes_of(got[t]).size(), cudaMemcpyDeviceToHost, stream_),
           "reading a gradient");
      cuda(cudaStreamSynchronize(stream_), "reading a gradient");
    }
    return got;
  }
  [[nodiscard]] Session& session() { return session_; }

 private:
  void load(std::size_t t, std::uint64_t step) {
    const auto values = values_of(t, rank_, step);  // not pinned, so it was read when the call returns
    cuda(cudaMemcpyAsync(gradients_[t], values.data(), bytes_of(values).size(), cudaMemcpyHostToDevice, stream_),
         "loading a gradient");
  }

  int rank_;
  cudaStream_t stream_;
  Session session_;
  std::vector<float*> gradients_;
  std::vector<float*> scales_;  // empty for tensors without scales
  std::vector<TensorId> ids_;
};

/// Compares the results of a step in every tensor.
inline void compare_step(Check& check, const Results& got, const Results& wanted, std::uint64_t step,
                         const std::string& what) {
  for (std::size_t t = 0; t < kTensors; ++t) {
    check.same_bytes(bytes_of(got[t]), bytes_of(wanted[step * kTensors + t]),
                     what + ", step " + std::to_string(step) + ", tensor " + std::to_string(t));
  }
}

}  // namespace gradwire::gpu
