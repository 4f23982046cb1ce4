// Everything that needs no MPI, CUDA or Torch.
#pragma once

#include "gradwire/codec_spec.hpp"
#include "gradwire/communicator.hpp"
#include "gradwire/dtype.hpp"
#include "gradwire/error.hpp"
#include "gradwire/link.hpp"
#include "gradwire/optimizer.hpp"
#include "gradwire/policy.hpp"
#include "gradwire/reduction.hpp"
#include "gradwire/session.hpp"
#include "gradwire/statistics.hpp"
#include "gradwire/table.hpp"
#include "gradwire/threading.hpp"
#include "gradwire/transport.hpp"
#include "gradwire/version.hpp"
