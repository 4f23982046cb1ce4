// Functions of NCCL that the drop-in forwards without looking at them. Calls of a function that only a newer NCCL has
// bypass the drop-in; nccl_symbols_test then asks for a line here.
#include "plugins/nccl_preload/real.hpp"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // ncclResetDebugInit

// NOLINTBEGIN(bugprone-macro-parentheses): parameters and arguments bring their own
#define FORWARD(result, name, parameters, arguments) \
  GRADWIRE_NCCL_DECLARE(result, name, parameters)    \
  extern "C" result name parameters { return GRADWIRE_NCCL_REAL(name) arguments; }
// NOLINTEND(bugprone-macro-parentheses)

FORWARD(ncclResult_t, ncclGetVersion, (int* version), (version))
FORWARD(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id), (id))
FORWARD(const char*, ncclGetErrorString, (ncclResult_t result), (result))
FORWARD(const char*, ncclGetLastError, (ncclComm_t comm), (comm))
FORWARD(ncclResult_t, ncclCommCount, (ncclComm_t comm, int* count), (comm, count))
FORWARD(ncclResult_t, ncclCommCuDevice, (ncclComm_t comm, int* device), (comm, device))
FORWARD(ncclResult_t, ncclCommUserRank, (ncclComm_t comm, int* rank), (comm, rank))
FORWARD(ncclResult_t, ncclMemAlloc, (void** pointer, size_t bytes), (pointer, bytes))
FORWARD(ncclResult_t, ncclMemFree, (void* pointer), (pointer))
FORWARD(ncclResult_t, ncclCommRegister, (ncclComm_t comm, void* buffer, size_t bytes, void** handle),
        (comm, buffer, bytes, handle))
FORWARD(ncclResult_t, ncclCommDeregister, (ncclComm_t comm, void* handle), (comm, handle))
FORWARD(void, ncclResetDebugInit, (), ())
FORWARD(ncclResult_t, ncclCommWindowRegister,
        (ncclComm_t comm, void* buffer, size_t bytes, ncclWindow_t* window, int flags),
        (comm, buffer, bytes, window, flags))
FORWARD(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window), (comm, window))

// nccl_device.h
FORWARD(ncclResult_t, ncclDevCommCreate,
        (ncclComm_t comm, const ncclDevCommRequirements_t* requirements, ncclDevComm_t* device_comm),
        (comm, requirements, device_comm))
FORWARD(ncclResult_t, ncclDevCommDestroy, (ncclComm_t comm, const ncclDevComm_t* device_comm), (comm, device_comm))
FORWARD(ncclTeam_t, ncclTeamWorld, (ncclComm_t comm), (comm))
FORWARD(ncclTeam_t, ncclTeamLsa, (ncclComm_t comm), (comm))
FORWARD(ncclTeam_t, ncclTeamRail, (ncclComm_t comm), (comm))
FORWARD(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank), (comm, team, rank))
FORWARD(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank), (comm, team, rank))
FORWARD(ncclResult_t, ncclLsaBarrierCreateRequirement,
        (ncclTeam_t team, int barriers, ncclLsaBarrierHandle_t* handle, ncclDevResourceRequirements_t* requirements),
        (team, barriers, handle, requirements))
FORWARD(ncclResult_t, ncclGinBarrierCreateRequirement,
        (ncclComm_t comm, ncclTeam_t team, int barriers, ncclGinBarrierHandle_t* handle,
         ncclDevResourceRequirements_t* requirements),
        (comm, team, barriers, handle, requirements))
FORWARD(int, ncclLLA2ACalcSlots, (int max_elements, int max_element_bytes), (max_elements, max_element_bytes))
FORWARD(ncclResult_t, ncclLLA2ACreateRequirement,
        (int blocks, int slots, ncclLLA2AHandle_t* handle, ncclDevResourceRequirements_t* requirements),
        (blocks, slots, handle, requirements))
