#include "plugins/torch_c10d/ddp_names.hpp"

#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugins/torch_c10d/backend.hpp"
#include "plugins/torch_c10d/ddp_model.hpp"
#include "policy/glob.hpp"

namespace py = pybind11;

namespace gradwire::torch_c10d {
namespace {

// Sums a bucket as DDP does without a hook, but in pieces: neighbouring parameters whose names match the same rules are
// one call, which has the name of the first.
class NamedBuckets {
 public:
  NamedBuckets(c10::intrusive_ptr<GradwireBackend> group, DdpModel model)
      : group_(std::move(group)), sequence_(group_->next_sequence()), model_(std::move(model)) {
    if (!group_->engine().may_compress()) {
      return;  // each bucket stays one sum, as without a hook
    }
    for (const Policy::Rule& rule : group_->engine().configuration().planner.policy().rules) {
      if (rule.match.glob) {
        globs_.emplace_back(*rule.match.glob);
      }
    }
  }

  py::object operator()(const DdpBucket& bucket) {
    const at::Tensor& buffer = bucket.buffer;
    py::list pieces;
    if (bucket.first) {
      order_ = 0;
    }
    {
      const at::NoGradGuard no_grad;
      buffer.mul_(1.0 / group_->getSize());  // as DDP does without a hook, to the last bit
      if (!bucket.dense()) {
        pieces.append(sum(buffer, {}));
      } else {
        sum_pieces(buffer, bucket.parameters, pieces);
      }
    }
    return py::module_::import("torch.futures")
        .attr("collect_all")(pieces)
        .attr("then")(py::cpp_function([buffer](const py::object& all) {
          for (const py::handle piece : all.attr("value")()) {
            piece.attr("value")();  // raises the error of the sum
          }
          return buffer;
        }));
  }

 private:
  void sum_pieces(const at::Tensor& buffer, const Tensors& parameters, py::list& pieces) {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::string name;
    std::vector<bool> rules;
    for (const at::Tensor& parameter : parameters) {
      const auto number = model_.find(parameter);
      const std::string own = number ? model_.parameters()[*number].name : "";
      std::vector<bool> own_rules;
      for (const policy::Glob& glob : globs_) {
        own_rules.push_back(glob.matches(own));
      }
      if (end > begin && own_rules != rules) {
        pieces.append(sum(buffer.narrow(0, begin, end - begin), name));
        begin = end;
      }
      if (end == begin) {
        name = own;
        rules = std::move(own_rules);
      }
      end += parameter.numel();
    }
    pieces.append(sum(buffer.narrow(0, begin, buffer.numel() - begin), name));
  }

  [[nodiscard]] py::object sum(const at::Tensor& piece, const std::string& name) {
    Tensors tensors{piece};
    WorkPointer work;
    {
      const py::gil_scoped_release others_may_need_it;  // threads with locks that this call needs
      work = group_->sum_named(tensors, name, sequence_, order_++);
    }
    return py::cast(work).attr("get_future")();
  }

  c10::intrusive_ptr<GradwireBackend> group_;
  std::uint32_t sequence_;  // of this model: several models may use one group
  DdpModel model_;
  std::vector<policy::Glob> globs_;
  std::uint64_t order_ = 0;  // of the next piece, in its step
};

c10::intrusive_ptr<GradwireBackend> group_of(const DdpModel& model) {
  py::object group = model.group();
#if TORCH_VERSION_MAJOR >= 2
  group = group.attr("_get_backend")(py::module_::import("torch").attr("device")("cpu"));
#endif
  auto* const own = dynamic_cast<GradwireBackend*>(group.cast<Base*>());
  if (own == nullptr) {
    throw py::value_error(
        "gradwire_torch.name_buckets: the model's process group has another backend; make it with "
        "init_process_group(\"gradwire\")");
  }
  return c10::intrusive_ptr<GradwireBackend>::unsafe_reclaim_from_nonowning(own);
}

}  // namespace

void name_buckets(const py::object& model) {
  DdpModel named(model, "gradwire_torch.name_buckets");
  auto group = group_of(named);
  const auto hook = std::make_shared<NamedBuckets>(std::move(group), std::move(named));
  py::module_::import("torch.distributed")
      .attr("_register_comm_hook")(
          model.attr("reducer"), py::none(),
          py::cpp_function([hook](const py::object&, const py::object& bucket) { return (*hook)(DdpBucket(bucket)); }));
}

}  // namespace gradwire::torch_c10d
