//! Provision states and verbs, in Ironic's exact words.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A closed set of words that travel as text, in JSON and on flash alike, so
/// that the order of the variants never matters.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// Every word of the set.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word on the wire.
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

/// The text is not a word of the set.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown word")]
pub struct UnknownWord;

words! {
    /// Where a node is in its life.
    ProvisionState {
        /// Known, not yet checked.
        Enroll = "enroll",
        /// Credentials are being checked.
        Verifying = "verifying",
        /// Under our control, not offered.
        Manageable = "manageable",
        /// Ready for a deployment.
        Available = "available",
        /// Carries an instance.
        Active = "active",
        /// Waiting for the agent in a deployment.
        DeployWait = "wait call-back",
        /// We work on a deployment.
        Deploying = "deploying",
        /// A deployment failed.
        DeployFail = "deploy failed",
        /// A deployment waits for `unhold`.
        DeployHold = "deploy hold",
        /// The instance is being removed.
        Deleting = "deleting",
        /// Removal failed.
        Error = "error",
        /// We work on cleaning.
        Cleaning = "cleaning",
        /// Waiting for the agent in cleaning.
        CleanWait = "clean wait",
        /// Cleaning failed.
        CleanFail = "clean failed",
        /// Cleaning waits for `unhold`.
        CleanHold = "clean hold",
        /// We work on an inspection.
        Inspecting = "inspecting",
        /// Waiting for inspection data.
        InspectWait = "inspect wait",
        /// Inspection failed.
        InspectFail = "inspect failed",
        /// Taking over a running instance.
        Adopting = "adopting",
        /// Adoption failed.
        AdoptFail = "adopt failed",
        /// We work on a rescue.
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
        /// We work on a service.
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
    /// What an operator may ask of a node (`target` of `states/provision`).
    Verb {
        /// Check credentials, or return to `manageable`.
        Manage = "manage",
        /// Clean and offer.
        Provide = "provide",
        /// Clean by given steps.
        Clean = "clean",
        /// Look inside.
        Inspect = "inspect",
        /// Take over a running instance.
        Adopt = "adopt",
        /// Deploy (the older word).
        Active = "active",
        /// Deploy.
        Deploy = "deploy",
        /// Deploy again on the same node.
        Rebuild = "rebuild",
        /// Remove the instance (the older word).
        Deleted = "deleted",
        /// Remove the instance.
        Undeploy = "undeploy",
        /// Boot a rescue ramdisk.
        Rescue = "rescue",
        /// Return from rescue.
        Unrescue = "unrescue",
        /// Run service steps.
        Service = "service",
        /// Stop what waits.
        Abort = "abort",
        /// Go on after a hold.
        Unhold = "unhold",
    }
}

impl ProvisionState {
    /// Nothing is under way: only a verb moves the node on.
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

    /// Something failed and an operator must decide.
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

    /// We wait for the agent: heartbeats act.
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
