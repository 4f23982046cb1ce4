#include "plugins/torch_c10d/ddp_names.hpp"

#include <torch/csrc/utils/pybind.h>

#include <utility>

#include "plugins/torch_c10d/backend.hpp"
#include "plugins/torch_c10d/ddp_model.hpp"
#include "plugins/torch_c10d/hook.hpp"
#include "plugins/torch_c10d/reporting.hpp"

namespace py = pybind11;

namespace gradwire::torch_c10d {
namespace {

constexpr const char* kName = "gradwire_torch.name_buckets";

const GroupEngine& engine_of(const DdpModel& model) {
  py::object group = model.group();
#if TORCH_VERSION_MAJOR >= 2
  group = group.attr("_get_backend")(py::module_::import("torch").attr("device")("cpu"));
#endif
  auto* const own = dynamic_cast<GradwireBackend*>(group.cast<Base*>());
  if (own == nullptr) {
    throw py::value_error(std::string(kName) +
                          ": the model's process group has another backend; make it with "
                          "init_process_group(\"gradwire\"), or use gradwire_torch.Hook");
  }
  return own->engine();
}

// Adds the hook's buckets to the report of the process, as sums of a group with as many ranks.
void count(const SessionStatistics& reduced) {
  for (const SessionStatistics::Group& group : reduced.groups) {
    const Statistics& all = group.totals;
    const std::uint64_t compressed = group.compressed ? all.calls : 0;
    ledger().add({.function = choice::Function::c10d_all_reduce,
                  .op = "mean",
                  .communicator_size = reduced.world_size,
                  .name = group.name,
                  .codec = group.compressed ? group.codec : "",
                  .reason = group.compressed ? choice::Reason::none : choice::Reason::policy_exact},
                 {.calls = all.calls,
                  .compressed_calls = compressed,
                  .bytes_in = all.bytes_in,
                  .bytes_dense = all.bytes_uncompressed,
                  .bytes_sent = all.bytes_sent,
                  .seconds = all.total_seconds,
                  .algorithm = group.algorithm,
                  .lossy_calls = group.codec.starts_with("exact") ? 0 : compressed});
    if (group.compressed && all.nonfinite_frames > 0) {
      tell_of_nonfinite();
    }
  }
}

}  // namespace

void name_buckets(const py::object& model) {
  DdpModel named(model, kName);
  const GroupEngine& group = engine_of(named);
  if (!group.may_compress() || !named.device().is_cpu()) {
    return;  // DDP sums its buckets by the group, as without a hook
  }
  const py::object hook = make_hook(std::move(named), [&] {
    return HookOptions{.policy = group.configuration().planner.policy(),
                       .timeout = group.configuration().longest_wait(),
                       .ended = count};
  });
  model.attr("register_comm_hook")(py::none(), hook);
}

}  // namespace gradwire::torch_c10d
