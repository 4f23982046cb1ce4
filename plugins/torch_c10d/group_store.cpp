#include "plugins/torch_c10d/group_store.hpp"

#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "base/timeout.hpp"
#include "plugins/torch_c10d/backend.hpp"

namespace py = pybind11;

namespace gradwire::torch_c10d {
namespace {

py::module_ distributed() { return py::module_::import("torch.distributed"); }

// Makes a store for a group that has none, such as one of the backend mpi. Collective.
py::object make_store(const py::object& group, int rank, int size) {
  const py::module_ dist = distributed();
  const py::object host = py::module_::import("socket").attr("gethostname")();
  py::list where;
  where.append(py::none());
  py::object store;
  if (rank == 0) {
    store = dist.attr("TCPStore")(host, 0, size, true, py::arg("wait_for_workers") = false);
    where[0] = py::make_tuple(host, store.attr("port"));
  }
  dist.attr("broadcast_object_list")(where, dist.attr("distributed_c10d").attr("get_global_rank")(group, 0), group);
  if (rank > 0) {
    const py::tuple address = where[0];
    store = dist.attr("TCPStore")(address[0], address[1], size, false, py::arg("wait_for_workers") = false);
  }
  return store;
}

py::object own_store(const py::object& group, int rank, int size, const std::string& kind) {
  const py::module_ c10d = py::module_::import("torch.distributed.distributed_c10d");
  const py::object groups = py::hasattr(c10d, "_world") ? c10d.attr("_world").attr("pg_map") : c10d.attr("_pg_map");
  const py::tuple known = groups[group];  // backend and store
  py::object store = known[1];
  if (store.is_none()) {
    store = make_store(group, rank, size);
  }
  const auto number = store.attr("add")(kind + "/rank" + std::to_string(rank), 1).cast<int>();
  return distributed().attr("PrefixStore")(kind + "/" + std::to_string(number), store);
}

// Works with whichever smart pointer Python's object has.
StorePointer pointer_of(const py::object& store) {
  return StorePointer::unsafe_reclaim_from_nonowning(store.cast<c10d::Store*>());
}

}  // namespace

transport::Rendezvous store_of_group(const py::object& group, int rank, int size, const std::string& kind) {
  return rendezvous_of(pointer_of(own_store(group, rank, size, kind)));
}

std::chrono::milliseconds timeout_of(const std::optional<std::chrono::duration<double>>& given,
                                     const std::string& caller) {
  std::chrono::milliseconds limit =
      given ? std::chrono::duration_cast<std::chrono::milliseconds>(*given) : std::chrono::minutes(30);
  if (const auto bound = drop_in::timeout_of_environment()) {
    limit = std::min(limit, *bound);
  }
  return checked_timeout(limit, caller);
}

}  // namespace gradwire::torch_c10d
