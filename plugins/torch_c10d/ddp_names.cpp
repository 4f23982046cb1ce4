#include "plugins/torch_c10d/ddp_names.hpp"

#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plugins/torch_c10d/backend.hpp"
#include "policy/glob.hpp"

namespace py = pybind11;

namespace gradwire::torch_c10d {
namespace {

// Sums a bucket as DDP does without a hook, but in pieces: neighbouring parameters whose names match the same rules are
// one call, which has the name of the first. Buckets and futures are Python objects here, since not every Torch has the
// headers of the C++ ones.
class NamedBuckets {
 public:
  NamedBuckets(c10::intrusive_ptr<GradwireBackend> group, std::unordered_map<const c10::TensorImpl*, std::string> names)
      : group_(std::move(group)), sequence_(group_->next_sequence()), names_(std::move(names)) {
    if (!group_->engine().may_compress()) {
      return;  // each bucket stays one sum, as without a hook
    }
    for (const Policy::Rule& rule : group_->engine().configuration().planner.policy().rules) {
      if (rule.match.glob) {
        globs_.emplace_back(*rule.match.glob);
      }
    }
  }

  py::object operator()(const py::object& bucket) {
    auto buffer = bucket.attr("buffer")().cast<at::Tensor>();
    py::list pieces;
    if (bucket.attr("index")().cast<std::size_t>() == 0) {
      order_ = 0;
    }
    {
      const at::NoGradGuard no_grad;
      buffer.mul_(1.0 / group_->getSize());   // as DDP does without a hook, to the last bit
      if (buffer.layout() != at::kStrided) {  // a bucket with a sparse gradient has no other
        pieces.append(sum(buffer, {}));
      } else {
        sum_pieces(buffer, bucket.attr("parameters")().cast<Tensors>(), pieces);
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
      const auto found = names_.find(parameter.unsafeGetTensorImpl());
      const std::string own = found == names_.end() ? "" : found->second;
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
  std::uint32_t sequence_;                                         // of this model: several models may use one group
  std::unordered_map<const c10::TensorImpl*, std::string> names_;  // the reducer keeps the keys alive
  std::vector<policy::Glob> globs_;
  std::uint64_t order_ = 0;  // of the next piece, in its step
};

c10::intrusive_ptr<GradwireBackend> group_of(const py::object& model) {
  py::object group = model.attr("process_group");
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
  if (!py::hasattr(model, "reducer") || !py::hasattr(model, "module")) {
    throw py::type_error("gradwire_torch.name_buckets: give it the DistributedDataParallel, after it was made");
  }
  std::unordered_map<const c10::TensorImpl*, std::string> names;
  for (const py::handle item : model.attr("module").attr("named_parameters")()) {
    const auto pair = item.cast<std::pair<std::string, at::Tensor>>();
    names.emplace(pair.second.unsafeGetTensorImpl(), pair.first);
  }
  const auto hook = std::make_shared<NamedBuckets>(group_of(model), std::move(names));
  py::module_::import("torch.distributed")
      .attr("_register_comm_hook")(
          model.attr("reducer"), py::none(),
          py::cpp_function([hook](const py::object&, const py::object& bucket) { return (*hook)(bucket); }));
}

}  // namespace gradwire::torch_c10d
