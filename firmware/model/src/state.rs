//! Provision states and verbs, spelled as in Ironic.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Defines a closed set of names that are strings in JSON and on flash alike, so that the order
/// of the variants never matters.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// Every value of the set.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The string on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = $crate::state::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err($crate::state::UnknownWord),
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                let text = String::deserialize(input)?;
                text.parse().map_err(|_| {
                    serde::de::Error::custom(format_args!(
                        concat!("unknown ", stringify!($name), " \"{}\""),
                        text.escape_debug()
                    ))
                })
            }
        }
    };
}

/// The string is not a value of the set.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown word")]
pub struct UnknownWord;

words! {
    /// The provision state of a node.
    ProvisionState {
        /// Enrolled, BMC not yet verified.
        Enroll = "enroll",
        /// The BMC login is being verified.
        Verifying = "verifying",
        /// Manageable, not yet available.
        Manageable = "manageable",
        /// Ready for a deployment.
        Available = "available",
        /// Has an instance.
        Active = "active",
        /// Waiting for the agent in a deployment.
        DeployWait = "wait call-back",
        /// A deployment is running.
        Deploying = "deploying",
        /// A deployment failed.
        DeployFail = "deploy failed",
        /// A deployment waits for `unhold`.
        DeployHold = "deploy hold",
        /// The instance is being removed.
        Deleting = "deleting",
        /// Removal failed.
        Error = "error",
        /// Cleaning is running.
        Cleaning = "cleaning",
        /// Waiting for the agent in cleaning.
        CleanWait = "clean wait",
        /// Cleaning failed.
        CleanFail = "clean failed",
        /// Cleaning waits for `unhold`.
        CleanHold = "clean hold",
        /// An inspection is running.
        Inspecting = "inspecting",
        /// Waiting for inspection data.
        InspectWait = "inspect wait",
        /// Inspection failed.
        InspectFail = "inspect failed",
        /// Taking over a running instance.
        Adopting = "adopting",
        /// Adoption failed.
        AdoptFail = "adopt failed",
        /// A rescue is running.
        Rescuing = "rescuing",
        /// The rescue ramdisk runs.
        Rescue = "rescue",
        /// Waiting for the agent in a rescue.
        RescueWait = "rescue wait",
        /// Rescue failed.
        RescueFail = "rescue failed",
        /// Returning from rescue.
        Unrescuing = "unrescuing",
        /// Returning from rescue failed.
        UnrescueFail = "unrescue failed",
        /// A service is running.
        Servicing = "servicing",
        /// Waiting for the agent in a service.
        ServiceWait = "service wait",
        /// Service failed.
        ServiceFail = "service failed",
        /// Service waits for `unhold`.
        ServiceHold = "service hold",
    }
}

words! {
    /// A verb of an operator (`target` of `states/provision`).
    Verb {
        /// Verify the BMC login, or return to `manageable`.
        Manage = "manage",
        /// Clean and make available.
        Provide = "provide",
        /// Clean with the given steps.
        Clean = "clean",
        /// Inspect the hardware.
        Inspect = "inspect",
        /// Take over a running instance.
        Adopt = "adopt",
        /// Deploy (the older name).
        Active = "active",
        /// Deploy.
        Deploy = "deploy",
        /// Deploy again on the same node.
        Rebuild = "rebuild",
        /// Remove the instance (the older name).
        Deleted = "deleted",
        /// Remove the instance.
        Undeploy = "undeploy",
        /// Boot a rescue ramdisk.
        Rescue = "rescue",
        /// Return from rescue.
        Unrescue = "unrescue",
        /// Run service steps.
        Service = "service",
        /// Abort the current clean, deploy, inspect or rescue.
        Abort = "abort",
        /// Continue after a hold.
        Unhold = "unhold",
    }
}

impl ProvisionState {
    /// Whether nothing is under way: only a verb changes the state.
    pub const fn is_resting(self) -> bool {
        self.is_stable() || self.is_failure()
    }

    /// Ironic's stable states: entering one clears `target_provision_state`.
    pub const fn is_stable(self) -> bool {
        matches!(
            self,
            Self::Enroll
                | Self::Manageable
                | Self::Available
                | Self::Active
                | Self::Error
                | Self::Rescue
        )
    }

    /// Whether something failed and an operator must decide.
    pub const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::DeployFail
                | Self::CleanFail
                | Self::InspectFail
                | Self::AdoptFail
                | Self::RescueFail
                | Self::UnrescueFail
                | Self::ServiceFail
                | Self::Error
        )
    }

    /// Whether the job waits for the agent: heartbeats continue it.
    pub const fn is_waiting(self) -> bool {
        matches!(
            self,
            Self::DeployWait
                | Self::CleanWait
                | Self::InspectWait
                | Self::RescueWait
                | Self::ServiceWait
        )
    }

    /// The states in which an agent may look its node up (Ironic's
    /// `restrict_lookup`, without fast track).
    pub const fn allows_lookup(self) -> bool {
        self.is_waiting()
            || matches!(
                self,
                Self::Deploying | Self::Cleaning | Self::Inspecting | Self::Rescuing
            )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back() {
        for &state in ProvisionState::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        for &verb in Verb::ALL {
            assert_eq!(verb.as_str().parse(), Ok(verb));
        }
        assert_eq!("Active".parse::<ProvisionState>(), Err(UnknownWord));
    }

    #[test]
    fn no_state_both_waits_and_rests() {
        for &state in ProvisionState::ALL {
            assert!(!(state.is_waiting() && state.is_resting()), "{state}");
        }
    }

    #[test]
    fn words_travel_as_text() {
        assert_eq!(
            serde_json::to_string(&ProvisionState::DeployWait).unwrap(),
            "\"wait call-back\""
        );
        let bad = serde_json::from_str::<Verb>("\"dance\"")
            .unwrap_err()
            .to_string();
        assert!(bad.contains("unknown Verb \"dance\""), "{bad}");
    }
}
