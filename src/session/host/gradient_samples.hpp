// What is measured of some tiles of a bucket.
#pragma once

#include "choice/guard.hpp"
#include "exchange/host/host_executor.hpp"

namespace gradwire::session {

/// Encodes some tiles of what is about to be reduced, and looks at what that drops.
[[nodiscard]] choice::QualitySample sample_quality(const exchange::Task& task);
/// Of what a rank hands in, or of what comes out.
[[nodiscard]] double squared_norm(const codec::TensorList& tensors);

}  // namespace gradwire::session
