// The part of FSDP's compressed reduce-scatter that does not need Torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "gradwire/codec_spec.hpp"
#include "gradwire/dtype.hpp"
#include "gradwire/reduction.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::torch_c10d {

/// This is the name in messages.
inline constexpr const char* kScatterName = "gradwire_torch.ReduceScatter";

struct ScatterOptions {
  int rank = 0;
  int world_size = 1;
  CodecSpec codec = CodecSpec::parse("int8");
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  // for any single wait
  transport::Rendezvous store = {};                             // with keys of this engine alone
  int device = 0;                                               // of CUDA; for tensors in its memory
};

/// Both tensors are on the host, or on the engine's device.
struct ScatterCall {
  ConstView input;  // world_size segments
  View output;      // this rank's segment of the sum or mean; may be its segment of `input`
  Reduction reduction = Reduction::sum;
  double factor = 1;       // of this rank's values; on a device alone
  void* stream = nullptr;  // the cudaStream_t with the caller's work
};

class ScatterEngine {
 public:
  ScatterEngine() = default;
  ScatterEngine(const ScatterEngine&) = delete;
  ScatterEngine& operator=(const ScatterEngine&) = delete;
  virtual ~ScatterEngine() = default;

  /// Every rank makes the same calls in the same order, by one thread at a time. On the host it returns when the result
  /// is there; on a device it enqueues the work behind `stream`, which has the result afterwards. On any error the
  /// engine is over.
  virtual void reduce_scatter(const ScatterCall& call) = 0;
};

/// Connects the ranks, which all call it.
[[nodiscard]] std::unique_ptr<ScatterEngine> make_host_scatter_engine(const ScatterOptions& options);

/// The function that the shared object with the device's part exports. It makes an engine over CUDA, which the caller
/// owns. The call is collective. It throws Error(unsupported) where there is no driver, Error(invalid_argument) where
/// the device is not there.
inline constexpr const char* kDeviceScatterFunction = "gradwire_torch_make_device_scatter_engine";
using DeviceScatterFunction = ScatterEngine* (*)(const ScatterOptions&);

}  // namespace gradwire::torch_c10d
