// gradwire.h: the calls of a training loop on a session.
#include <string_view>

#include "api/c_api.hpp"

using gradwire::TensorId;
using gradwire::Ticket;
using gradwire::View;
using gradwire::api::check_struct_size;
using gradwire::api::dtype_of;
using gradwire::api::guard;
using gradwire::api::required;
using gradwire::api::session_of;

namespace {

constexpr const char* kTicket = "gradwire_ticket";

std::string_view name_of(const char* name) { return name == nullptr ? std::string_view() : name; }

void give_id(TensorId id, std::uint32_t* tensor) {
  if (tensor != nullptr) {
    *tensor = static_cast<std::uint32_t>(id);
  }
}

void give_ticket(const Ticket& ticket, gradwire_ticket* target) {
  const gradwire_ticket values{
      .struct_size = sizeof values, .step = ticket.step, .bucket = ticket.bucket, .session = ticket.session};
  gradwire::api::write_struct(values, target);
}

// Checks the ticket to which a call must write.
void check_ticket_target(const gradwire_ticket* ticket, const char* function) {
  required(ticket, function, "ticket", "where to write it");
  check_struct_size(ticket, kTicket);
}

Ticket ticket_of(const gradwire_ticket* given, const char* function) {
  const gradwire_ticket known = gradwire::api::read_struct(
      &required(given, function, "ticket", "one that gradwire_session_ready_ticket() wrote"), kTicket);
  // In C++ 0 stands for a ticket whose session is not known; in C it is a ticket that no call has written.
  if (known.session == 0 && known.bucket != Ticket::kNothing) {
    throw gradwire::Error(
        gradwire::ErrorCode::invalid_argument,
        std::string(function) + ": no ready wrote this ticket; give one that gradwire_session_ready_ticket() wrote");
  }
  return {.step = known.step, .bucket = known.bucket, .session = known.session};
}

std::vector<View> states_of(const gradwire_tensor_parameters& parameters, std::uint64_t count, gradwire::DType dtype,
                            const char* function) {
  gradwire::api::check_data(parameters.states, parameters.state_count, sizeof(void*), function, "states");
  std::vector<View> states;
  for (std::uint32_t i = 0; i < parameters.state_count; ++i) {
    states.push_back({parameters.states[i], count, dtype});
  }
  return states;
}

}  // namespace

extern "C" {

int gradwire_session_rank(const gradwire_session* session) { return session == nullptr ? -1 : session->session.rank(); }

int gradwire_session_world_size(const gradwire_session* session) {
  return session == nullptr ? -1 : session->session.world_size();
}

gradwire_status gradwire_session_add(gradwire_session* session, const char* name, void* gradient, uint64_t count,
                                     gradwire_dtype dtype, uint32_t* tensor) {
  const char* function = __func__;
  return guard([&] {
    give_id(session_of(session, function).add(name_of(name), View{gradient, count, dtype_of(dtype, function)}), tensor);
  });
}

gradwire_status gradwire_session_add_with_ndim(gradwire_session* session, const char* name, void* gradient,
                                               uint64_t count, gradwire_dtype dtype, uint32_t ndim, uint32_t* tensor) {
  const char* function = __func__;
  return guard([&] {
    give_id(session_of(session, function).add(name_of(name), View{gradient, count, dtype_of(dtype, function)}, ndim),
            tensor);
  });
}

gradwire_status gradwire_session_add_with_options(gradwire_session* session, const char* name, void* gradient,
                                                  uint64_t count, gradwire_dtype dtype,
                                                  const gradwire_tensor_options* options, uint32_t* tensor) {
  const char* function = __func__;
  return guard([&] {
    gradwire::Session& of = session_of(session, function);
    const gradwire_tensor_options known = gradwire::api::read_struct(options, "gradwire_tensor_options");
    if (known.reserved != 0) {
      throw gradwire::Error(gradwire::ErrorCode::unsupported, std::string(function) + ": reserved is not 0");
    }
    const std::size_t scaled = known.scale == nullptr ? 0 : static_cast<std::size_t>(count);
    give_id(of.add(name_of(name), View{gradient, count, dtype_of(dtype, function)},
                   {.ndim = known.ndim == 0 ? 1 : known.ndim, .scale = {known.scale, scaled}}),
            tensor);
  });
}

gradwire_status gradwire_session_add_with_parameters(gradwire_session* session, const char* name, void* gradient,
                                                     uint64_t count, gradwire_dtype dtype,
                                                     const gradwire_tensor_parameters* parameters, uint32_t* tensor) {
  const char* function = __func__;
  return guard([&] {
    gradwire::Session& of = session_of(session, function);
    const gradwire_tensor_parameters known = gradwire::api::read_struct(
        &required(parameters, function, "parameters", "a gradwire_tensor_parameters"), "gradwire_tensor_parameters");
    const gradwire::DType type = dtype_of(dtype, function);
    give_id(of.add(name_of(name), View{gradient, count, type}, View{known.parameter, count, type},
                   states_of(known, count, type, function), known.ndim == 0 ? 1 : known.ndim),
            tensor);
  });
}

gradwire_status gradwire_session_ready(gradwire_session* session, uint32_t tensor) {
  const char* function = __func__;
  return guard([&] { session_of(session, function).ready(TensorId{tensor}); });
}

gradwire_status gradwire_session_ready_zero(gradwire_session* session, uint32_t tensor) {
  const char* function = __func__;
  return guard([&] { session_of(session, function).ready_zero(TensorId{tensor}); });
}

gradwire_status gradwire_session_ready_ticket(gradwire_session* session, uint32_t tensor, gradwire_ticket* ticket) {
  const char* function = __func__;
  return guard([&] {
    check_ticket_target(ticket, function);
    give_ticket(session_of(session, function).ready(TensorId{tensor}), ticket);
  });
}

gradwire_status gradwire_session_ready_zero_ticket(gradwire_session* session, uint32_t tensor,
                                                   gradwire_ticket* ticket) {
  const char* function = __func__;
  return guard([&] {
    check_ticket_target(ticket, function);
    give_ticket(session_of(session, function).ready_zero(TensorId{tensor}), ticket);
  });
}

gradwire_status gradwire_session_ready_at(gradwire_session* session, uint32_t tensor, void* gradient, uint64_t count,
                                          gradwire_dtype dtype, gradwire_ticket* ticket) {
  const char* function = __func__;
  return guard([&] {
    check_struct_size(ticket, kTicket);
    const View view{gradient, count, dtype_of(dtype, function)};
    give_ticket(session_of(session, function).ready(TensorId{tensor}, view), ticket);
  });
}

gradwire_status gradwire_session_done(gradwire_session* session, const gradwire_ticket* ticket, int32_t* done) {
  const char* function = __func__;
  return guard([&] {
    gradwire::Session& of = session_of(session, function);
    int32_t& result = required(done, function, "done", "where to write it");
    result = of.done(ticket_of(ticket, function)) ? 1 : 0;
  });
}

gradwire_status gradwire_session_wait(gradwire_session* session, const gradwire_ticket* ticket) {
  const char* function = __func__;
  return guard([&] { session_of(session, function).wait(ticket_of(ticket, function)); });
}

gradwire_status gradwire_session_set_no_sync(gradwire_session* session, gradwire_switch no_sync) {
  const char* function = __func__;
  return guard([&] {
    gradwire::Session& of = session_of(session, function);
    of.set_no_sync(gradwire::api::switch_of(no_sync, function, "no_sync").value_or(false));
  });
}

gradwire_status gradwire_session_finish(gradwire_session* session, gradwire_step_outcome* outcome) {
  const char* function = __func__;
  return guard([&] {
    check_struct_size(outcome, "gradwire_step_outcome");
    gradwire::StepOutcome found = session_of(session, function).finish();
    const gradwire_step_outcome values{.struct_size = sizeof values,
                                       .step = found.step,
                                       .skipped = found.skipped ? 1 : 0,
                                       .nonfinite = found.nonfinite ? 1 : 0};
    gradwire::api::write_struct(values, outcome);
    session->nonfinite_ranks = std::move(found.nonfinite_ranks);
  });
}

gradwire_status gradwire_session_nonfinite_ranks(const gradwire_session* session, int* ranks, uint64_t capacity,
                                                 uint64_t* count) {
  const char* function = __func__;
  return guard([&] {
    session_of(session, function);
    const std::vector<int>& found = session->nonfinite_ranks;
    required(count, function, "count", "where to write it") = found.size();
    if (ranks == nullptr && capacity == 0) {
      return;
    }
    required(ranks, function, "ranks", "their address, or capacity 0");
    if (capacity < found.size()) {
      throw gradwire::Error(gradwire::ErrorCode::invalid_argument,
                            std::string(function) + ": capacity is " + std::to_string(capacity) + " for " +
                                std::to_string(found.size()) + " ranks; give room for as many as the world has");
    }
    std::copy(found.begin(), found.end(), ranks);
  });
}

gradwire_status gradwire_session_sync_parameters(gradwire_session* session) {
  const char* function = __func__;
  return guard([&] { session_of(session, function).sync_parameters(); });
}

gradwire_status gradwire_session_broadcast(gradwire_session* session, void* values, uint64_t count,
                                           gradwire_dtype dtype, int root) {
  const char* function = __func__;
  return guard([&] { session_of(session, function).broadcast(View{values, count, dtype_of(dtype, function)}, root); });
}

gradwire_status gradwire_session_set_weight(gradwire_session* session, double samples) {
  const char* function = __func__;
  return guard([&] { session_of(session, function).set_weight(samples); });
}

gradwire_status gradwire_session_set_loss_scale(gradwire_session* session, double scale) {
  const char* function = __func__;
  return guard([&] { session_of(session, function).set_loss_scale(scale); });
}

gradwire_status gradwire_session_flush(gradwire_session* session) {
  const char* function = __func__;
  return guard([&] { session_of(session, function).flush(); });
}

gradwire_status gradwire_session_save(gradwire_session* session, const char* directory) {
  const char* function = __func__;
  return guard([&] {
    gradwire::Session& of = session_of(session, function);
    of.save(std::filesystem::path(&required(directory, function, "directory", "the name of one")));
  });
}

gradwire_status gradwire_session_load(gradwire_session* session, const char* directory) {
  const char* function = __func__;
  return guard([&] {
    gradwire::Session& of = session_of(session, function);
    of.load(std::filesystem::path(&required(directory, function, "directory", "the name of one")));
  });
}

gradwire_status gradwire_session_reserve(gradwire_session* session) {
  const char* function = __func__;
  return guard([&] { session_of(session, function).reserve(); });
}

gradwire_status gradwire_session_abort(gradwire_session* session, const char* why) {
  const char* function = __func__;
  return guard([&] {
    gradwire::Session& of = session_of(session, function);
    of.abort(&required(why, function, "why", "the reason as a text"));
  });
}

void gradwire_session_destroy(gradwire_session* session) { delete session; }

}  // extern "C"
