"""RBD746, RBD766: the passphrase and the metadata of an encrypted volume."""

from __future__ import annotations

from typing import Final

from rbdagent.codes import Code
from rbdagent.commands import template
from rbdagent.model import LifecycleStep, Recovery, Severity
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.controller_texts import ENCRYPTION_MEANS, SHOW_SECRET, VAULT_MEANS, VAULT_REMEDY
from rbdagent.rules.entry import Entry
from rbdagent.rules.error_texts import (
    NODE_PODS,
    STAGE_SECRET,
    ErrorText,
    field_of_volume,
    retried,
)
from rbdagent.rules.facts import is_plain

ENTRIES: Final = (
    Entry(
        Code.ENCRYPTION_FAILS,
        Severity.ERROR,
        "The passphrase of the encrypted volume is not available, or does not open the volume.",
        remedy="Restore the KMS and its configuration (ConfigMap csi-kms-connection-details).",
        recovery=retried("the passphrase is available"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.ENCRYPTION_UNFINISHED,
        Severity.ERROR,
        "The metadata of the image marks it neither as encrypted nor as to be encrypted.",
        remedy="Check whether a pod ever ran with the volume, and what the metadata is (`rbd "
        "image-meta list`). If no pod did: set the PV to Retain, delete the claim, and create it "
        "again. If the image is a copy: set its metadata to that of the original. Never format it.",
        recovery=Recovery(note="no step writes that metadata later"),
        step=LifecycleStep.STAGE,
    ),
)
_NOT_ENCRYPTED: Final = ErrorText(
    (),
    Code.ENCRYPTION_FAILS,
    "the driver asks for a passphrase, although the PV is not encrypted: a defect of the driver",
    (NODE_PODS, field_of_volume("csi.volumeAttributes")),
    "Compare the version of ceph-csi: 3.8.0 does this (ceph-csi#3759). Update it, or go back to "
    "the version before. Nothing is wrong with a KMS, and the data needs no passphrase.",
    retried("the driver is another version"),
)
ENCRYPTION_TEXTS: Final = (
    ErrorText(
        (Recognised.ENCRYPTION_STATUS,),
        Code.ENCRYPTION_UNFINISHED,
        "the metadata of the image marks it neither as encrypted nor as to be encrypted",
        (template("rbd image-meta list", "{image}"),),
    ),
    ErrorText(
        (Recognised.PASSPHRASE_NOT_IN_SECRET,),
        Code.ENCRYPTION_FAILS,
        "the secret of the volume has no encryptionPassphrase",
        (STAGE_SECRET,),
        "Add the key encryptionPassphrase, with the passphrase that the volume was created with, "
        "to the secret that the PV names.",
        causes=((is_plain, _NOT_ENCRYPTED),),
    ),
    ErrorText(
        (Recognised.PASSPHRASE_SECRET_GONE,),
        Code.ENCRYPTION_FAILS,
        ENCRYPTION_MEANS,
        (SHOW_SECRET,),
        "Restore that secret as it was when the volume was created: another passphrase does not "
        "open it.",
    ),
    ErrorText(
        (Recognised.VAULT_REFUSES,),
        Code.ENCRYPTION_FAILS,
        VAULT_MEANS,
        remedy=VAULT_REMEDY,
    ),
    ErrorText(
        (Recognised.VAULT_UNREACHABLE,),
        Code.ENCRYPTION_FAILS,
        "the CSI node plugin cannot log in to Vault: {why}",
        (NODE_PODS,),
        "Test the connection from the network of the plugin's pod on that node: the name and port "
        "of vaultAddress, the firewall, and the CA of Vault's certificate (vaultCAFromSecret). "
        "The provisioner runs on another node, and may reach Vault. Delete nothing in Vault.",
        retried("the plugin can log in to Vault"),
    ),
    ErrorText(
        # The key is vaultPassphrasePath, and the handle of the volume (vaultKMS.FetchDEK).
        (Recognised.KEY_NOT_IN_VAULT,),
        Code.ENCRYPTION_FAILS,
        "Vault has no passphrase of the volume where ceph-csi looks for it",
        (field_of_volume("csi.volumeHandle"), field_of_volume("csi.volumeAttributes")),
        "Compare vaultBackendPath, vaultNamespace and vaultPassphrasePath of the KMS entry with "
        "those that the volume was created with. If they are the same, restore the passphrase "
        "from a backup of Vault: without it, the data is lost. A PV with another volumeHandle than "
        "the original (a copy) has another path.",
        retried("Vault has the passphrase at that path"),
    ),
    ErrorText(
        (Recognised.NO_KMS_ENTRY,),
        Code.ENCRYPTION_FAILS,
        "ceph-csi's configuration of key management services has no entry {kms}; it has {have}",
        (field_of_volume("csi.volumeAttributes"),),
        "Restore that entry as it was when the volume was created, in the ConfigMap that the "
        "plugin mounts at /etc/ceph-csi-encryption-kms-config or, if it mounts none, in "
        "csi-kms-connection-details in its namespace. ceph-csi's journal names the entry for the "
        "volume: another one does not replace it.",
        retried("the entry exists"),
    ),
    ErrorText(
        # secretskms.go: the passphrase and the handle of the volume make the key (generateCipher).
        (Recognised.KEY_NOT_DECRYPTED,),
        Code.ENCRYPTION_FAILS,
        "the KMS does not decrypt the key in the metadata of the image: {why}",
        (template("rbd image-meta list", "{image}"), field_of_volume("csi.volumeAttributes")),
        "Restore the passphrase or the master key that the KMS had when the volume was created. "
        "`message authentication failed` means another encryptionPassphrase, or an image that was "
        "copied to a PV with another volumeHandle. Do not change the metadata of the image.",
        retried("the KMS has its former key"),
    ),
    ErrorText(
        (Recognised.PASSPHRASE_REFUSED,),
        Code.ENCRYPTION_FAILS,
        "the passphrase that ceph-csi has does not open the LUKS device on {device}",
        (STAGE_SECRET, field_of_volume("csi.volumeAttributes")),
        "Restore the passphrase that the volume was created with, in the secret "
        "(encryptionPassphrase) or in the KMS. Do not format the image, and change no key slot: "
        "either can make the data unreadable.",
    ),
    ErrorText(
        (Recognised.ENCRYPTION_FAILED,),
        Code.ENCRYPTION_FAILS,
        "the passphrase of the encrypted volume is not available",
        causes=((is_plain, _NOT_ENCRYPTED),),
    ),
)


RULES: Final = ()
"""None: node_stage.py reports the texts, like those of all other steps."""
