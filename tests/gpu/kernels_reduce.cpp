// Compares sums over ranks with the host: sum and mean, own part, residuals, a second encoding or a stored result.
#include <algorithm>
#include <limits>

#include "kernels/device/operations.hpp"
#include "tests/gpu/kernel_jobs.hpp"
#include "tests/support/simulated_codecs.hpp"

namespace gradwire::gpu {
namespace {

struct ReduceOptions {
  std::uint32_t count;
  int ranks = 4;
  int own = 1;  // the rank whose part is not encoded; -1: none
  bool encode = true;
  bool residuals = true;
  double divisor = 1;
  bool device_divisor = false;
  Kind kind = Kind::plain;
  int damaged = -1;   // rank whose frame names another step
  double factor = 1;  // of the own part
};

std::string name_of(const Case& c, const ReduceOptions& o) {
  return "reduce " + c.name() + ", " + std::to_string(o.count) + " elements, " + std::to_string(o.ranks) + " ranks" +
         (o.own < 0 ? ", no own part" : "") + (o.encode ? ", encoded" : ", stored") +
         (o.residuals ? ", residuals" : "") + (o.divisor != 1 || o.device_divisor ? ", divided" : "") +
         (o.kind == Kind::special ? ", special values" : "") + (o.damaged >= 0 ? ", a damaged frame" : "") +
         (o.factor != 1 ? ", factor" : "");
}

// The host memory of a reduction; the device gets copies.
struct Operands {
  std::vector<Bytes> frames;
  Bytes own, own_residual, owner_residual, result, out;
  double divisor = 0;
};

Operands make_operands(const Check& check, const Case& c, const Case& second, const ReduceOptions& o) {
  Operands operands;
  for (int rank = 0; rank < o.ranks; ++rank) {
    const unsigned seed = check.seed() + 10 + static_cast<unsigned>(rank);
    const Bytes values = tensor(c.dtype, o.count, seed, o.kind);
    if (rank == o.own) {
      operands.own = values;
    }
    operands.frames.push_back(rank == o.own ? Bytes() : host_frame(c, values, c.dtype, o.count, 5));
    if (rank == o.damaged) {
      operands.frames.back()[24] ^= std::byte{1};
    }
  }
  // Of special values the own ones are -0 where the residual is 0.
  operands.own_residual =
      tensor(DType::f32, o.count, check.seed() + 9 + static_cast<unsigned>(std::max(0, o.own)), o.kind);
  operands.owner_residual = tensor(DType::f32, o.count, check.seed() + 5);
  operands.result = tensor(c.dtype, o.count, check.seed() + 6);
  operands.out.resize(second.codec().frame_bytes(o.count));
  operands.divisor = o.divisor;
  return operands;
}

kernels::ReduceJob job_of(const Case& c, const Case& second, const ReduceOptions& o) {
  kernels::ReduceJob job;
  job.second = second.frame_codec();
  job.count = o.count;
  job.first_tile = 5;
  job.ranks = o.ranks;
  job.own_rank = o.own;
  job.own_dtype = c.dtype;
  job.factor = o.factor;
  job.divisor = o.device_divisor ? 1 : o.divisor;
  job.result_dtype = c.dtype;
  return job;
}

void reduce_both(Check& check, void* stream, const Case& c, const Case& second, const ReduceOptions& o) {
  const std::string what = name_of(c, o);
  Operands host = make_operands(check, c, second, o);
  const HostCall host_call(c.frame_codec());
  const DeviceCall call(c.frame_codec());
  const std::size_t pitch = (c.codec().frame_bytes(o.count) + 15) / 16 * 16;
  Bytes host_frames;
  for (int rank = 0; rank < o.ranks; ++rank) {
    if (rank != o.own) {
      const Bytes& frame = host.frames[static_cast<std::size_t>(rank)];
      host_frames.insert(host_frames.end(), frame.begin(), frame.end());
      host_frames.resize(host_frames.size() + pitch - frame.size());
    }
  }
  const Memory frames(host_frames);
  const Memory own(host.own);
  const Memory own_residual(host.own_residual);
  const Memory owner_residual(host.owner_residual);
  const Memory result(host.result);
  const Memory out(host.out.size());
  const Memory divisor(std::as_bytes(std::span(&host.divisor, 1)));

  kernels::ReduceJob job = job_of(c, second, o);
  job.pitch = static_cast<std::uint32_t>(pitch);
  const auto fill = [&](const kernels::CallFields& fields, const void* own_part, void* residual, void* owners, void* to,
                        void* frame, const void* by) {
    job.call = fields;
    job.own = o.own < 0 ? nullptr : own_part;
    job.own_residual = o.residuals && o.own >= 0 ? static_cast<float*>(residual) : nullptr;
    job.owner_residual = o.residuals && o.encode ? static_cast<float*>(owners) : nullptr;
    job.result = o.encode ? nullptr : to;
    job.out = o.encode ? static_cast<std::uint8_t*>(frame) : nullptr;
    job.device_divisor = o.device_divisor ? static_cast<const double*>(by) : nullptr;
  };
  fill(host_call.fields, host.own.data(), host.own_residual.data(), host.owner_residual.data(), host.result.data(),
       host.out.data(), &host.divisor);
  job.frames = reinterpret_cast<const std::uint8_t*>(host_frames.data());
  test::run_reduce(job);
  fill(call.fields(), own.data(), own_residual.data(), owner_residual.data(), result.data(), out.data(),
       divisor.data());
  job.frames = frames.frame();
  kernels::reduce(job, stream);

  if (o.encode) {
    same_frame(check, second, read_intact(check, out, what), host.out,
               {.count = o.count, .first_tile = job.first_tile, .hop = 1}, what + ": frame");
  }
  check.same_elements(c.dtype, read_intact(check, result, what), host.result, what + ": result");
  check.same_elements(DType::f32, read_intact(check, own_residual, what), host.own_residual, what + ": own residual");
  check.same_elements(DType::f32, read_intact(check, owner_residual, what), host.owner_residual,
                      what + ": owner residual");
  check.that(
      call.status().bad_frames == host_call.status.bad_frames && call.status().first_bad == host_call.status.first_bad,
      what + ": bad frames in the status");
  check.that((call.status().nonfinite != 0) == (host_call.status.nonfinite != 0), what + ": NaN and Inf in the status");
}

}  // namespace

void check_reduce(Check& check, void* stream) {
  for (const Case& c : all_cases(check.small())) {
    check.part("reduce " + c.name(), [&] {
      for (const std::uint32_t count : check.small() ? std::vector<std::uint32_t>{0, 257, 4096 + 300}
                                                     : std::vector<std::uint32_t>{0, 1, 255, 4095, 4097, 100'007}) {
        reduce_both(check, stream, c, c, {.count = count});
        reduce_both(check, stream, c, c, {.count = count, .encode = false, .divisor = 4});
      }
      const std::uint32_t many = check.small() ? 4096 : 2 * 4096 + 1000;
      reduce_both(check, stream, c, c, {.count = many, .own = 0, .divisor = 3, .kind = Kind::special});
      reduce_both(check, stream, c, c,
                  {.count = many, .ranks = 3, .own = -1, .residuals = false, .divisor = 2.5, .device_divisor = true});
      reduce_both(check, stream, c, c, {.count = many, .ranks = 3, .encode = false, .damaged = 2});
      reduce_both(check, stream, c, c, {.count = 300, .ranks = 3, .factor = 0.3});
      if (!check.small()) {
        reduce_both(check, stream, c, c, {.count = 4096 + 9, .ranks = 70, .own = 66});  // more than one launch takes
      }
    });
  }
  check.part("reduce topk(1%)+int8, then int4", [&] {
    const Case first{CodecSpec::parse("topk(1%)+int8"), DType::f32};
    const Case second{CodecSpec::parse("int4"), DType::f32};
    reduce_both(check, stream, first, second, {.count = 2 * 4096 + 77});
    reduce_both(check, stream, first, second, {.count = 2 * 4096, .encode = false, .damaged = 0});
  });
  check.part("reduce, then topk(1%)", [&] {
    for (const Case& first : all_cases(check.small())) {
      if (first.spec.k != 0 || (first.dtype != DType::f32 && first.dtype != DType::f64)) {
        continue;
      }
      const Case second{CodecSpec::parse(first.working() == DType::f64 ? "topk(1%)+exact" : "topk(1%)+int4"),
                        first.dtype};
      reduce_both(check, stream, first, second, {.count = 2 * 4096 + 77, .factor = 0.3});
      reduce_both(check, stream, first, second, {.count = 4096 + 77, .residuals = false});
      reduce_both(check, stream, first, second, {.count = 4096, .kind = Kind::special, .damaged = 0});
    }
  });
  check.part("reduce, divided by unusual numbers", [&] {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Case c{CodecSpec::parse("exact"), dtype};
      for (const double divisor :
           {0x1p127, 0x1p126, 0x1p-126, 0x1p-127, 0x1p1023, 0x1p1022, 0x1p-1022, 0x1p-1023, -4.0, 0.0, -0.0,
            std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
        reduce_both(check, stream, c, c,
                    {.count = 300, .ranks = 2, .encode = false, .divisor = divisor, .device_divisor = divisor < 1});
      }
    }
  });
}

}  // namespace gradwire::gpu
