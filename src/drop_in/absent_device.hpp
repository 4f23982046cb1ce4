// Stands for a device that refuses to work for gradwire: its rank answers in the agreement that it compresses nothing,
// so that all ranks pass their calls.
#pragma once

#include <memory>

#include "drop_in/device_reducer.hpp"
#include "gradwire/error.hpp"

namespace gradwire::drop_in {

/// Makes a link for a rank that compresses nothing because of `why`. It takes no memory of the device.
[[nodiscard]] std::unique_ptr<DeviceLink> make_absent_link(int rank, int world_size, std::shared_ptr<RankGather> gather,
                                                           const Error& why);

}  // namespace gradwire::drop_in
