// A report as the preloaded library writes it.
#pragma once

namespace gradwire::test {

inline constexpr const char* kReport = R"({
  "gradwire": "0.1.0", "world": 4, "library": "Open MPI 4.1.4", "dry_run": false, "policy": "built-in", "disabled": null,
  "totals": { "calls": 24, "compressed_calls": 12, "bytes_in": 805306752, "bytes_dense": 1207960128,
              "bytes_sent": 304087488, "ratio": 3.972, "ratio_compressed": 3.9735 },
  "classes": [
    { "function": "MPI_Allreduce", "dtype": "f32", "op": "sum", "count": 8, "communicator_size": 4, "order": 1, "name": null,
      "codec": null, "calls": 12, "compressed_calls": 0, "bytes_in": 384, "bytes_dense": 576, "bytes_sent": 576,
      "ratio": 1.0, "seconds": 0.0005, "reason": "below the floor" },
    { "function": "MPI_Allreduce", "dtype": "f32", "op": "sum", "count": 16777216, "communicator_size": 4, "order": 0,
      "name": "layer1.weight", "codec": "int8", "calls": 12, "compressed_calls": 12, "bytes_in": 805306368,
      "bytes_dense": 1207959552, "bytes_sent": 304086912, "ratio": 3.9725, "seconds": 2.5, "reason": null } ] })";

}  // namespace gradwire::test
